#!/usr/bin/env python3
"""Writes Rust sources of ROS 2 messages and services where the crate ros-env, and so rclrs, looks for them.

Usage: gen_rust_msgs.py --out PREFIX PACKAGE[=IDL_FOLDER] ...

For every package named, and every package that their fields refer to, writes
PREFIX/share/PACKAGE/rust/{Cargo.toml, src/{msg,srv}.rs, src/{msg,srv}/rmw.rs}: once as plain Rust types and once in the C layout that
the middleware reads and writes. A package whose Rust sources are already in AMENT_PREFIX_PATH is left to them. PACKAGE=IDL_FOLDER
names a package that is not installed yet, with its files in IDL_FOLDER/{msg,srv}/*.idl. Files are touched only when their text changes.
"""

import argparse
import dataclasses
import os
import pathlib
import sys

from rosidl_parser import definition as idl
from rosidl_parser.parser import parse_idl_file

RUNTIME = 'rosidl_runtime_rs'

SCALARS = {
    'boolean': 'bool', 'octet': 'u8', 'char': 'u8', 'wchar': 'u16', 'float': 'f32', 'double': 'f64',
    'int8': 'i8', 'uint8': 'u8', 'int16': 'i16', 'uint16': 'u16',
    'int32': 'i32', 'uint32': 'u32', 'int64': 'i64', 'uint64': 'u64',
}

# Words that Rust keeps for itself and a field may be called.
RESERVED = frozenset(
    'abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen if impl in let loop '
    'macro match mod move mut override priv pub ref return self static struct super trait true try type typeof unsafe unsized use '
    'virtual where while yield'.split())


def field_name(name):
    return f'{name}_' if name in RESERVED else name


# ---- types ----------------------------------------------------------------------------------------------------------------------


def plain_type(kind):
    """The Rust type of a field, as a user of the message sees it."""
    if isinstance(kind, idl.UnboundedSequence):
        return f'Vec<{plain_type(kind.value_type)}>'
    if isinstance(kind, idl.Array):
        return f'[{plain_type(kind.value_type)}; {kind.size}]'
    if isinstance(kind, idl.AbstractGenericString) and not kind.has_maximum_size():
        return 'std::string::String'
    if isinstance(kind, idl.NamespacedType):
        return '::'.join(['crate', *kind.namespaces, kind.name])
    return c_type(kind)  # scalars and everything bounded


def c_type(kind):
    """The Rust type of a field in the C layout of rosidl."""
    if isinstance(kind, idl.BasicType):
        return SCALARS[kind.typename]
    if isinstance(kind, idl.AbstractGenericString):
        wide = 'W' if isinstance(kind, idl.AbstractWString) else ''
        if kind.has_maximum_size():
            return f'{RUNTIME}::Bounded{wide}String<{kind.maximum_size}>'
        return f'{RUNTIME}::{wide}String'
    if isinstance(kind, idl.Array):
        return f'[{c_type(kind.value_type)}; {kind.size}]'
    if isinstance(kind, idl.BoundedSequence):
        return f'{RUNTIME}::BoundedSequence<{c_type(kind.value_type)}, {kind.maximum_size}>'
    if isinstance(kind, idl.UnboundedSequence):
        return f'{RUNTIME}::Sequence<{c_type(kind.value_type)}>'
    if isinstance(kind, idl.NamespacedType):
        return '::'.join(['crate', *kind.namespaces, 'rmw', kind.name])
    raise TypeError(f'no Rust type for {kind!r}')


def is_same(kind):
    """True when both layouts hold the field in one type."""
    return plain_type(kind) == c_type(kind)


def to_c(kind, place):
    """Rust expression: the C-layout value of the plain field at `place` (a place expression, borrowed)."""
    if isinstance(kind, idl.BasicType):
        return place
    if is_same(kind):
        return f'{place}.clone()'
    if isinstance(kind, idl.AbstractGenericString):
        return f'{place}.as_str().into()'
    if isinstance(kind, idl.NamespacedType):
        return f'<{plain_type(kind)} as {RUNTIME}::Message>::into_rmw_message(std::borrow::Cow::Borrowed(&{place})).into_owned()'
    if isinstance(kind, idl.Array):
        return f'std::array::from_fn(|i| {to_c(kind.value_type, f"{place}[i]")})'
    if isinstance(kind.value_type, idl.BasicType):
        return f'{place}.as_slice().into()'
    item = to_c(kind.value_type, '(*item)')
    return f'{place}.iter().map(|item| {item}).collect()'


def from_c(kind, value):
    """Rust expression: the plain value of the owned C-layout expression `value`."""
    if is_same(kind):
        return value
    if isinstance(kind, idl.AbstractGenericString):
        return f'{value}.to_string()'
    if isinstance(kind, idl.NamespacedType):
        return f'<{plain_type(kind)} as {RUNTIME}::Message>::from_rmw_message({value})'
    if isinstance(kind, idl.Array):
        return f'{value}.map(|item| {from_c(kind.value_type, "item")})'
    if isinstance(kind.value_type, idl.BasicType):
        return f'{value}.as_slice().to_vec()'
    return f'{value}.into_iter().map(|item| {from_c(kind.value_type, "item")}).collect()'


def packages_in(kind):
    """The packages that a field's type refers to."""
    if isinstance(kind, idl.NamespacedType):
        return {kind.namespaces[0]}
    if isinstance(kind, (idl.Array, idl.AbstractSequence)):
        return packages_in(kind.value_type)
    return set()


# ---- Rust text ------------------------------------------------------------------------------------------------------------------

C_MESSAGE = '''
#[link(name = "{package}__rosidl_typesupport_c")]
extern "C" {{
    fn rosidl_typesupport_c__get_message_type_support_handle__{symbol}() -> *const std::ffi::c_void;
}}

#[link(name = "{package}__rosidl_generator_c")]
extern "C" {{
    fn {symbol}__init(message: *mut {name}) -> bool;
    fn {symbol}__Sequence__init(sequence: *mut {runtime}::Sequence<{name}>, size: usize) -> bool;
    fn {symbol}__Sequence__fini(sequence: *mut {runtime}::Sequence<{name}>);
    fn {symbol}__Sequence__copy(from: &{runtime}::Sequence<{name}>, to: *mut {runtime}::Sequence<{name}>) -> bool;
}}

#[repr(C)]
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub struct {name} {{
{c_fields}
}}
{constants}
impl Default for {name} {{
    fn default() -> Self {{
        let mut message = std::mem::MaybeUninit::<Self>::zeroed();
        // SAFETY: init takes uninitialised memory of the message's layout; the value is read only when it reports success.
        unsafe {{
            assert!({symbol}__init(message.as_mut_ptr()), "{symbol}__init failed");
            message.assume_init()
        }}
    }}
}}

impl {runtime}::SequenceAlloc for {name} {{
    fn sequence_init(sequence: &mut {runtime}::Sequence<Self>, size: usize) -> bool {{
        // SAFETY: a reference to a sequence of this message is what the function takes.
        unsafe {{ {symbol}__Sequence__init(sequence, size) }}
    }}
    fn sequence_fini(sequence: &mut {runtime}::Sequence<Self>) {{
        // SAFETY: as above; the caller does not use the elements again.
        unsafe {{ {symbol}__Sequence__fini(sequence) }}
    }}
    fn sequence_copy(from: &{runtime}::Sequence<Self>, to: &mut {runtime}::Sequence<Self>) -> bool {{
        // SAFETY: both are initialised sequences of this message.
        unsafe {{ {symbol}__Sequence__copy(from, to) }}
    }}
}}

impl {runtime}::Message for {name} {{
    type RmwMsg = Self;
    fn into_rmw_message(message: std::borrow::Cow<'_, Self>) -> std::borrow::Cow<'_, Self> {{
        message
    }}
    fn from_rmw_message(message: Self) -> Self {{
        message
    }}
}}

impl {runtime}::RmwMessage for {name} {{
    const TYPE_NAME: &'static str = "{package}/{kind}/{name}";
    fn get_type_support() -> *const std::ffi::c_void {{
        // SAFETY: no preconditions; returns a pointer to static data.
        unsafe {{ rosidl_typesupport_c__get_message_type_support_handle__{symbol}() }}
    }}
}}
'''

PLAIN_MESSAGE = '''
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub struct {name} {{
{plain_fields}
}}
{constants}
impl Default for {name} {{
    fn default() -> Self {{
        <Self as {runtime}::Message>::from_rmw_message(Default::default())
    }}
}}

impl {runtime}::Message for {name} {{
    type RmwMsg = rmw::{name};
    fn into_rmw_message(message: std::borrow::Cow<'_, Self>) -> std::borrow::Cow<'_, rmw::{name}> {{
        std::borrow::Cow::Owned(rmw::{name} {{
{to_c}
        }})
    }}
    fn from_rmw_message(message: rmw::{name}) -> Self {{
        Self {{
{from_c}
        }}
    }}
}}
'''

SERVICE = '''
#[link(name = "{package}__rosidl_typesupport_c")]
extern "C" {{
    fn rosidl_typesupport_c__get_service_type_support_handle__{package}__srv__{name}() -> *const std::ffi::c_void;
}}

pub struct {name};

impl {runtime}::Service for {name} {{
    type Request = {name}_Request;
    type Response = {name}_Response;
    fn get_type_support() -> *const std::ffi::c_void {{
        // SAFETY: no preconditions; returns a pointer to static data.
        unsafe {{ rosidl_typesupport_c__get_service_type_support_handle__{package}__srv__{name}() }}
    }}
}}
'''


def constant(entry):
    """One `pub const` line of a message constant."""
    if not isinstance(entry.type, idl.BasicType):
        text = str(entry.value).replace('\\', '\\\\').replace('"', '\\"')
        return f'    pub const {field_name(entry.name)}: &\'static str = "{text}";'
    rust = SCALARS[entry.type.typename]
    if rust == 'bool':
        value = 'true' if entry.value else 'false'
    elif rust.startswith('f'):
        value = repr(float(entry.value))
    else:
        value = str(entry.value)
    return f'    pub const {field_name(entry.name)}: {rust} = {value};'


@dataclasses.dataclass
class Module:
    """The two texts of one kind (msg or srv) of a package."""

    plain: str = ''
    c: str = ''

    def add_message(self, package, kind, message):
        name = message.structure.namespaced_type.name
        fields = [(field_name(member.name), member.type) for member in message.structure.members]
        constants = ''
        if message.constants:
            constants = '\n'.join(['', f'impl {name} {{', *map(constant, message.constants), '}', ''])
        words = {'package': package, 'kind': kind, 'name': name, 'symbol': f'{package}__{kind}__{name}', 'runtime': RUNTIME,
                 'constants': constants}
        self.c += C_MESSAGE.format(c_fields='\n'.join(f'    pub {f}: {c_type(t)},' for f, t in fields), **words)
        indent = ' ' * 12
        self.plain += PLAIN_MESSAGE.format(
            plain_fields='\n'.join(f'    pub {f}: {plain_type(t)},' for f, t in fields),
            to_c='\n'.join(f'{indent}{f}: {to_c(t, f"message.{f}")},' for f, t in fields),
            from_c='\n'.join(f'{indent}{f}: {from_c(t, f"message.{f}")},' for f, t in fields), **words)

    def add_service(self, package, service):
        for message in (service.request_message, service.response_message):
            self.add_message(package, 'srv', message)
        text = SERVICE.format(package=package, name=service.namespaced_type.name, runtime=RUNTIME)
        self.c += text
        self.plain += text


MANIFEST = '''[package]
name = "{package}"
version = "0.0.0"
edition = "2021"

[dependencies]
{dependencies}
[package.metadata.ros-env]
include = true
'''


class Generator:
    """Writes packages below one prefix, following references from package to package."""

    def __init__(self, out):
        self.out = out
        self.search = [pathlib.Path(p) for p in os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep) if p]
        self.done = set()

    def find(self, package):
        """(IDL folder, whether Rust sources are there already) of an installed package."""
        for prefix in self.search:
            share = prefix / 'share' / package
            if prefix.resolve() != self.out.resolve() and (share / 'package.xml').is_file():
                return share, (share / 'rust' / 'Cargo.toml').is_file()
        sys.exit(f'gen_rust_msgs: no package {package} in AMENT_PREFIX_PATH')

    def package(self, package, folder=None):
        if package in self.done:
            return
        self.done.add(package)
        if folder is None:
            folder, is_provided = self.find(package)
            if is_provided:
                return
        modules, refers_to = {}, set()
        for kind in ('msg', 'srv'):
            for path in sorted((folder / kind).glob('*.idl')):
                for element in parse_idl_file(idl.IdlLocator(folder, path.relative_to(folder))).content.elements:
                    module = modules.setdefault(kind, Module())
                    if isinstance(element, idl.Message):
                        module.add_message(package, kind, element)
                        messages = [element]
                    elif isinstance(element, idl.Service):
                        module.add_service(package, element)
                        messages = [element.request_message, element.response_message]
                    else:
                        continue
                    for message in messages:
                        refers_to.update(*(packages_in(member.type) for member in message.structure.members))
        refers_to.discard(package)
        if not modules:
            sys.exit(f'gen_rust_msgs: {package} has no .idl files in {folder}')
        root = self.out / 'share' / package / 'rust'
        for kind, module in modules.items():
            write(root / 'src' / kind / 'rmw.rs', module.c.lstrip())
            write(root / 'src' / f'{kind}.rs', module.plain.lstrip())
        write(root / 'Cargo.toml', MANIFEST.format(
            package=package, dependencies=''.join(f'{name} = "*"\n' for name in sorted(refers_to))))
        for name in sorted(refers_to):
            self.package(name)


def write(path, text):
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', required=True, type=pathlib.Path)
    parser.add_argument('packages', nargs='+', metavar='PACKAGE[=IDL_FOLDER]')
    arguments = parser.parse_args()
    generator = Generator(arguments.out)
    for argument in arguments.packages:
        name, _, folder = argument.partition('=')
        generator.package(name, pathlib.Path(folder) if folder else None)


if __name__ == '__main__':
    main()
