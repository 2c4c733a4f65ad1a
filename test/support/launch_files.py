"""The command lines that `ros2 launch` would start, from .launch.xml and .launch.py files.

`ros2 launch` itself may not be installed (it is not among the wheels). XML is read directly. Python launch files are run against the real
packages launch and launch_ros where they are installed, else against a stand-in for the part of their interface that ours use. In
either case the result is the same: a list of Command. Parameters travel in a file, as launch_ros does it, so that types survive.
"""

import dataclasses
import importlib.util
import pathlib
import re
import sys
import types
import xml.etree.ElementTree as ElementTree

import yaml
from ament_index_python.packages import get_package_prefix, get_package_share_directory

SUBSTITUTION = re.compile(r'\$\((var|find-pkg-share|find-pkg-prefix)\s+([^()\s]+)\)')


@dataclasses.dataclass
class Command:
    """One node of a launch file, with everything substituted."""

    package: str
    executable: str
    name: str
    namespace: str
    parameters: dict

    def argv(self, folder):
        """The command line; its parameter file is written into `folder`."""
        program = pathlib.Path(get_package_prefix(self.package), 'lib', self.package, self.executable)
        path = pathlib.Path(folder) / f'launch_params_{self.name}.yaml'
        path.write_text(yaml.safe_dump({'/**': {'ros__parameters': self.parameters}}))
        line = [str(program), '--ros-args', '-r', f'__node:={self.name}']
        if self.namespace:
            line += ['-r', f'__ns:=/{self.namespace.strip("/")}']
        return [*line, '--params-file', str(path)]

    def full_name(self):
        return '/'.join(['', *self.namespace.strip('/').split('/'), self.name]).replace('//', '/')


def typed(text, kind):
    """A parameter's text as its declared type; anything but the four plain types is an error."""
    if kind == 'str':
        return text
    if kind == 'bool':
        return {'true': True, 'false': False}[text.lower()]
    return {'int': int, 'float': float}[kind](text)


# ---- XML ------------------------------------------------------------------------------------------------------------------------


def from_xml(path, given):
    root = ElementTree.parse(path).getroot()
    assert root.tag == 'launch', path
    values = {}

    def put(match):
        kind, word = match.groups()
        if kind == 'var':
            return values[word]
        return get_package_share_directory(word) if kind == 'find-pkg-share' else get_package_prefix(word)

    def text(value):
        done = SUBSTITUTION.sub(put, value)
        assert '$(' not in done, f'{path}: a substitution that is not understood: {value}'
        return done

    commands = []
    for element in root:
        if element.tag == 'arg':
            name = element.attrib['name']
            values[name] = given[name] if name in given else text(element.attrib['default'])
        elif element.tag == 'node':
            for child in element:
                assert child.tag == 'param', f'{path}: <{child.tag}> in a node'
            parameters = {p.attrib['name']: typed(text(p.attrib['value']), p.attrib['type']) for p in element}
            commands.append(Command(element.attrib['pkg'], element.attrib['exec'], text(element.attrib['name']),
                                    text(element.get('namespace', '')), parameters))
        else:
            raise AssertionError(f'{path}: <{element.tag}> is not understood')
    assert set(given) <= set(values), f'{path}: unknown arguments {set(given) - set(values)}'
    return commands


# ---- Python ---------------------------------------------------------------------------------------------------------------------


class _Substitution:
    def __init__(self, value):
        self.value = value


class _Variable(_Substitution):
    def text(self, values):
        return values[self.value]


class _Share(_Substitution):
    def text(self, values):
        return get_package_share_directory(_text(self.value, values))


class _Join(_Substitution):
    def text(self, values):
        return str(pathlib.Path(*[_text(part, values) for part in self.value]))


class _Record:
    """An action: the keywords it was made with."""

    def __init__(self, *positional, **keywords):
        self.positional, self.keywords = positional, keywords


class _Argument(_Record):
    pass


class _Node(_Record):
    pass


class _Description(_Record):
    pass


class _Value(_Record):
    pass


def _text(value, values):
    return value.text(values) if isinstance(value, _Substitution) else str(value)


def _stand_in():
    """Modules by name, in the shape of launch and launch_ros."""
    def module(name, **members):
        made = types.ModuleType(name)
        made.__dict__.update(members)
        return made

    return {
        'launch': module('launch', LaunchDescription=_Description),
        'launch.actions': module('launch.actions', DeclareLaunchArgument=_Argument),
        'launch.substitutions': module('launch.substitutions', LaunchConfiguration=_Variable, PathJoinSubstitution=_Join),
        'launch_ros': module('launch_ros'),
        'launch_ros.actions': module('launch_ros.actions', Node=_Node),
        'launch_ros.parameter_descriptions': module('launch_ros.parameter_descriptions', ParameterValue=_Value),
        'launch_ros.substitutions': module('launch_ros.substitutions', FindPackageShare=_Share),
    }


def _load(path):
    spec = importlib.util.spec_from_file_location('launch_file_under_test', path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made.generate_launch_description()


def from_python(path, given):
    """With the stand-in in place of launch, whether that is installed or not; see really_parses for the real one."""
    stand_in = _stand_in()
    kept = {name: sys.modules.get(name) for name in stand_in}
    sys.modules.update(stand_in)
    try:
        entities = _load(path).positional[0]
    finally:
        for name, module in kept.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    values, commands = {}, []
    for entity in entities:
        if isinstance(entity, _Argument):
            name, = entity.positional
            values[name] = given[name] if name in given else _text(entity.keywords['default_value'], values)
        else:
            assert isinstance(entity, _Node), f'{path}: {entity} is not understood'
            node = entity.keywords
            parameters = {name: typed(_text(value.positional[0], values), value.keywords['value_type'].__name__)
                          for group in node['parameters'] for name, value in group.items()}
            commands.append(Command(node['package'], node['executable'], _text(node['name'], values), _text(node['namespace'], values),
                                    parameters))
    assert set(given) <= set(values), f'{path}: unknown arguments {set(given) - set(values)}'
    return commands


def really_parses(path):
    """Loads a launch file with the installed launch packages; None where they are not installed."""
    if importlib.util.find_spec('launch_ros') is None:
        return None
    if path.suffix == '.py':
        return _load(path)
    from launch.frontend import Parser
    entity, parser = Parser.load(str(path))
    return parser.parse_description(entity)


def commands(path, given=None):
    """Every node that the launch file starts with these arguments."""
    path = pathlib.Path(path)
    return (from_python if path.suffix == '.py' else from_xml)(path, given or {})
