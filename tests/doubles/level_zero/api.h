// Every function that the double has: X(table member, name), by table. tables.c puts them into the
// loader's tables, the rest stays NULL.
#ifndef PGD_TESTS_DOUBLES_LEVEL_ZERO_API_H
#define PGD_TESTS_DOUBLES_LEVEL_ZERO_API_H

#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>

#include "double.h"

struct _ze_kernel_handle_t {
    zed_kernel kernel;
};

#define API_GLOBAL(X) X(Init, zeInit)
#define API_DRIVER(X)   \
    X(Get, zeDriverGet) \
    X(GetApiVersion, zeDriverGetApiVersion)
#define API_DEVICE(X)                                                         \
    X(Get, zeDeviceGet)                                                       \
    X(GetProperties, zeDeviceGetProperties)                                   \
    X(GetModuleProperties, zeDeviceGetModuleProperties)                       \
    X(GetComputeProperties, zeDeviceGetComputeProperties)                     \
    X(GetCommandQueueGroupProperties, zeDeviceGetCommandQueueGroupProperties) \
    X(GetMemoryProperties, zeDeviceGetMemoryProperties)                       \
    X(PciGetPropertiesExt, zeDevicePciGetPropertiesExt)
#define API_CONTEXT(X)           \
    X(Create, zeContextCreate)   \
    X(Destroy, zeContextDestroy) \
    X(GetStatus, zeContextGetStatus)
#define API_MEM(X)                   \
    X(AllocDevice, zeMemAllocDevice) \
    X(AllocHost, zeMemAllocHost)     \
    X(Free, zeMemFree)               \
    X(GetAllocProperties, zeMemGetAllocProperties)
#define API_MODULE(X)         \
    X(Create, zeModuleCreate) \
    X(Destroy, zeModuleDestroy)
#define API_MODULE_BUILD_LOG(X)         \
    X(Destroy, zeModuleBuildLogDestroy) \
    X(GetString, zeModuleBuildLogGetString)
#define API_KERNEL(X)                     \
    X(Create, zeKernelCreate)             \
    X(Destroy, zeKernelDestroy)           \
    X(SetGroupSize, zeKernelSetGroupSize) \
    X(SetArgumentValue, zeKernelSetArgumentValue)
#define API_COMMAND_QUEUE(X)          \
    X(Create, zeCommandQueueCreate)   \
    X(Destroy, zeCommandQueueDestroy) \
    X(ExecuteCommandLists, zeCommandQueueExecuteCommandLists)
#define API_COMMAND_LIST(X)                                        \
    X(Create, zeCommandListCreate)                                 \
    X(CreateImmediate, zeCommandListCreateImmediate)               \
    X(Destroy, zeCommandListDestroy)                               \
    X(Close, zeCommandListClose)                                   \
    X(AppendBarrier, zeCommandListAppendBarrier)                   \
    X(AppendMemoryCopy, zeCommandListAppendMemoryCopy)             \
    X(AppendMemoryCopyRegion, zeCommandListAppendMemoryCopyRegion) \
    X(AppendMemoryFill, zeCommandListAppendMemoryFill)             \
    X(AppendEventReset, zeCommandListAppendEventReset)             \
    X(AppendLaunchKernel, zeCommandListAppendLaunchKernel)
#define API_EVENT_POOL(X)        \
    X(Create, zeEventPoolCreate) \
    X(Destroy, zeEventPoolDestroy)
#define API_EVENT(X)               \
    X(Create, zeEventCreate)       \
    X(Destroy, zeEventDestroy)     \
    X(HostReset, zeEventHostReset) \
    X(HostSynchronize, zeEventHostSynchronize)

#define API_DECLARE(member, name) extern __typeof__(name) zed_##name;
API_GLOBAL(API_DECLARE)
API_DRIVER(API_DECLARE)
API_DEVICE(API_DECLARE)
API_CONTEXT(API_DECLARE)
API_MEM(API_DECLARE)
API_MODULE(API_DECLARE)
API_MODULE_BUILD_LOG(API_DECLARE)
API_KERNEL(API_DECLARE)
API_COMMAND_QUEUE(API_DECLARE)
API_COMMAND_LIST(API_DECLARE)
API_EVENT_POOL(API_DECLARE)
API_EVENT(API_DECLARE)
#undef API_DECLARE

#endif
