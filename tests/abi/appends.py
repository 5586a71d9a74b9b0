"""What may change in the plugin interface within a major version: appends only.

refusals(old, new) compares two snapshots (see layout.py) and returns a sentence for each change
that a plugin built with the old headers, or a host built with them, would not survive. Allowed are
new structs, new constants, and new fields behind the last one of a struct that says how long it is:

  size-prefixed   begins with `uint32_t size`; passed by pointer only
  strided         rows of an array whose stride the owner of the array states

All other structs are leaves: they lie in arrays and arguments by value and are frozen.
"""

import re

# Struct: the field that says how far apart its rows lie.
STRIDED = {
    "pgd_weight_part": "pgd_weight_desc.part_stride",
    "pgd_sampling": "pgd_batch.sampling_stride",
    "pgd_option": "pgd_plugin.option_stride",
}


class Snapshot:
    """layout.txt and declarations.txt, parsed."""

    def __init__(self, layout, declared):
        self.layout, self.declared = layout, declared
        self.structs = {}  # struct: {field: (index, offset, size)}
        self.types = {}  # struct: {field: declaration}
        self.constants, self.others = {}, []
        for line in layout.splitlines():
            struct, field, offset, size = line.split()
            fields = self.structs.setdefault(struct, {})
            if field != ".":
                fields[field] = (len(fields), int(offset), int(size))
        order = {struct: iter(fields) for struct, fields in self.structs.items()}
        for line in declared.splitlines():
            constant = re.fullmatch(r"(PGD_\w+) (-?\d+)", line)
            if constant:
                self.constants[constant[1]] = int(constant[2])
            elif line.startswith(("#define ", "typedef ")):
                self.others.append(line)
            else:
                struct, declaration = line.split(": ", 1)
                self.types.setdefault(struct, {})[next(order[struct])] = declaration

    def grows(self, struct):
        types = self.types.get(struct, {})
        return struct in STRIDED or next(iter(types.values()), "") == "uint32_t size"


def struct_refusals(struct, old, new):
    before, after = old.structs[struct], new.structs[struct]
    for field, (index, offset, size) in before.items():
        if field not in after:
            yield f"{struct}.{field} was removed"
        elif after[field][:2] != (index, offset):
            yield f"{struct}.{field} was moved from byte {offset} to byte {after[field][1]}"
        elif after[field][2] != size or new.types[struct][field] != old.types[struct][field]:
            was, now = old.types[struct][field], new.types[struct][field]
            yield f"{struct}.{field} was retyped from '{was}' to '{now}'"
    added = [field for field in after if field not in before]
    for field in added:
        if not old.grows(struct):
            yield f"{struct}.{field} was added, but the struct is a leaf (it states no size)"
        elif after[field][0] < len(before):
            yield f"{struct}.{field} was inserted, not appended"


def embedded(new):
    """A struct that may grow must not lie inside another one by value."""
    for struct, fields in new.types.items():
        for field, declaration in fields.items():
            inner = re.match(r"(?:const )?(?:struct )?(pgd_\w+) \w", declaration)
            if inner and inner[1] in new.structs and new.grows(inner[1]):
                yield f"{struct}.{field} holds a {inner[1]} by value, which then could not grow"


def refusals(old, new):
    """Sentences, empty when new only appends to old."""
    found = []
    for struct in old.structs:
        if struct in new.structs:
            found += struct_refusals(struct, old, new)
        else:
            found.append(f"struct {struct} was removed")
    for name, number in old.constants.items():
        now = new.constants.get(name)
        if now is None:
            found.append(f"constant {name} was removed")
        elif now != number and not (name.endswith("_COUNT") and now > number):
            found.append(f"constant {name} was changed from {number} to {now}")
    for line in old.others:
        if line not in new.others:
            found.append(f"'{line}' was changed or removed")
    return found + list(embedded(new))
