// The loader's way to the functions: it asks for every table there is and wants an answer.
#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>
#include <level_zero/zet_api.h>
// In this order: each needs what the one before declares.
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_ddi.h>
#include <string.h>

#include "api.h"

#define EXPORT __attribute__((visibility("default")))

#define PUT(member, name) table->pfn##member = zed_##name;

// A function that fills one of the tables.
#define TABLE(function, type, LIST)                                      \
    EXPORT ze_result_t function(ze_api_version_t version, type *table) { \
        (void)version;                                                   \
        memset(table, 0, sizeof(*table));                                \
        LIST(PUT)                                                        \
        return ZE_RESULT_SUCCESS;                                        \
    }
#define NOTHING(X)

TABLE(zeGetGlobalProcAddrTable, ze_global_dditable_t, API_GLOBAL)
TABLE(zeGetDriverProcAddrTable, ze_driver_dditable_t, API_DRIVER)
TABLE(zeGetDeviceProcAddrTable, ze_device_dditable_t, API_DEVICE)
TABLE(zeGetDeviceExpProcAddrTable, ze_device_exp_dditable_t, NOTHING)
TABLE(zeGetContextProcAddrTable, ze_context_dditable_t, API_CONTEXT)
TABLE(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t, API_COMMAND_QUEUE)
TABLE(zeGetCommandListProcAddrTable, ze_command_list_dditable_t, API_COMMAND_LIST)
TABLE(zeGetImageProcAddrTable, ze_image_dditable_t, NOTHING)
TABLE(zeGetImageExpProcAddrTable, ze_image_exp_dditable_t, NOTHING)
TABLE(zeGetFenceProcAddrTable, ze_fence_dditable_t, NOTHING)
TABLE(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t, API_EVENT_POOL)
TABLE(zeGetEventProcAddrTable, ze_event_dditable_t, API_EVENT)
TABLE(zeGetEventExpProcAddrTable, ze_event_exp_dditable_t, NOTHING)
TABLE(zeGetModuleProcAddrTable, ze_module_dditable_t, API_MODULE)
TABLE(zeGetModuleBuildLogProcAddrTable, ze_module_build_log_dditable_t, API_MODULE_BUILD_LOG)
TABLE(zeGetKernelProcAddrTable, ze_kernel_dditable_t, API_KERNEL)
TABLE(zeGetKernelExpProcAddrTable, ze_kernel_exp_dditable_t, NOTHING)
TABLE(zeGetSamplerProcAddrTable, ze_sampler_dditable_t, NOTHING)
TABLE(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t, NOTHING)
TABLE(zeGetMemProcAddrTable, ze_mem_dditable_t, API_MEM)
TABLE(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t, NOTHING)
TABLE(zeGetFabricVertexExpProcAddrTable, ze_fabric_vertex_exp_dditable_t, NOTHING)
TABLE(zeGetFabricEdgeExpProcAddrTable, ze_fabric_edge_exp_dditable_t, NOTHING)
TABLE(zesGetDriverProcAddrTable, zes_driver_dditable_t, NOTHING)
TABLE(zesGetDeviceProcAddrTable, zes_device_dditable_t, NOTHING)
TABLE(zesGetSchedulerProcAddrTable, zes_scheduler_dditable_t, NOTHING)
TABLE(zesGetPerformanceFactorProcAddrTable, zes_performance_factor_dditable_t, NOTHING)
TABLE(zesGetPowerProcAddrTable, zes_power_dditable_t, NOTHING)
TABLE(zesGetFrequencyProcAddrTable, zes_frequency_dditable_t, NOTHING)
TABLE(zesGetEngineProcAddrTable, zes_engine_dditable_t, NOTHING)
TABLE(zesGetStandbyProcAddrTable, zes_standby_dditable_t, NOTHING)
TABLE(zesGetFirmwareProcAddrTable, zes_firmware_dditable_t, NOTHING)
TABLE(zesGetMemoryProcAddrTable, zes_memory_dditable_t, NOTHING)
TABLE(zesGetFabricPortProcAddrTable, zes_fabric_port_dditable_t, NOTHING)
TABLE(zesGetTemperatureProcAddrTable, zes_temperature_dditable_t, NOTHING)
TABLE(zesGetPsuProcAddrTable, zes_psu_dditable_t, NOTHING)
TABLE(zesGetFanProcAddrTable, zes_fan_dditable_t, NOTHING)
TABLE(zesGetLedProcAddrTable, zes_led_dditable_t, NOTHING)
TABLE(zesGetRasProcAddrTable, zes_ras_dditable_t, NOTHING)
TABLE(zesGetDiagnosticsProcAddrTable, zes_diagnostics_dditable_t, NOTHING)
TABLE(zetGetDeviceProcAddrTable, zet_device_dditable_t, NOTHING)
TABLE(zetGetContextProcAddrTable, zet_context_dditable_t, NOTHING)
TABLE(zetGetCommandListProcAddrTable, zet_command_list_dditable_t, NOTHING)
TABLE(zetGetModuleProcAddrTable, zet_module_dditable_t, NOTHING)
TABLE(zetGetKernelProcAddrTable, zet_kernel_dditable_t, NOTHING)
TABLE(zetGetMetricGroupProcAddrTable, zet_metric_group_dditable_t, NOTHING)
TABLE(zetGetMetricGroupExpProcAddrTable, zet_metric_group_exp_dditable_t, NOTHING)
TABLE(zetGetMetricProcAddrTable, zet_metric_dditable_t, NOTHING)
TABLE(zetGetMetricStreamerProcAddrTable, zet_metric_streamer_dditable_t, NOTHING)
TABLE(zetGetMetricQueryPoolProcAddrTable, zet_metric_query_pool_dditable_t, NOTHING)
TABLE(zetGetMetricQueryProcAddrTable, zet_metric_query_dditable_t, NOTHING)
TABLE(zetGetTracerExpProcAddrTable, zet_tracer_exp_dditable_t, NOTHING)
TABLE(zetGetDebugProcAddrTable, zet_debug_dditable_t, NOTHING)
