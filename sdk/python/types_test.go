package python

import (
	"fmt"
	"path"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// keywords of Python among the names of fields: such a field is reached with getattr and setattr.
var keywords = map[string]bool{"from": true, "in": true, "is": true, "not": true, "or": true, "and": true}

// typesCode returns the types of a module for checkers.
func typesCode(file protoreflect.FileDescriptor) string {
	w := &typesWriter{file: file}
	fmt.Fprintf(&w.out, generated, file.Path())
	w.out.WriteString(`from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper

`)
	for _, p := range importsOf(file) {
		w.out.WriteString(importOf(p))
	}
	w.out.WriteString("\nDESCRIPTOR: _descriptor.FileDescriptor\n")
	w.enums(file.Enums(), "")
	for i := range file.Messages().Len() {
		w.message(file.Messages().Get(i), "")
	}
	return w.out.String()
}

type typesWriter struct {
	file protoreflect.FileDescriptor
	out  strings.Builder
}

// enums writes the classes of enums, and their values beside them.
func (w *typesWriter) enums(all protoreflect.EnumDescriptors, indent string) {
	for i := range all.Len() {
		e := all.Get(i)
		fmt.Fprintf(&w.out, "\n%sclass %s(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):\n%[1]s    __slots__ = ()\n",
			indent, e.Name())
		w.enumValues(e, indent+"    ", w.qualified(e))
		w.enumValues(e, indent, w.qualified(e))
	}
}

func (w *typesWriter) enumValues(e protoreflect.EnumDescriptor, indent, kind string) {
	for i := range e.Values().Len() {
		fmt.Fprintf(&w.out, "%s%s: %s\n", indent, e.Values().Get(i).Name(), kind)
	}
}

func (w *typesWriter) message(m protoreflect.MessageDescriptor, indent string) {
	fmt.Fprintf(&w.out, "\n%sclass %s(_message.Message):\n", indent, m.Name())
	inner := indent + "    "
	fmt.Fprintf(&w.out, "%sDESCRIPTOR: _ClassVar[_descriptor.Descriptor]\n", inner)
	w.enums(m.Enums(), inner)
	for i := range m.Messages().Len() {
		if nested := m.Messages().Get(i); !nested.IsMapEntry() {
			w.message(nested, inner)
		}
	}
	var arguments strings.Builder
	extra := ""
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if keywords[string(f.Name())] {
			extra = ", **kwargs: _Any"
			continue
		}
		attribute, argument := w.fieldTypes(f)
		if f.Message() != nil || f.IsList() {
			fmt.Fprintf(&w.out, "%s@property\n%[1]sdef %s(self) -> %s: ...\n", inner, f.Name(), attribute)
		} else {
			fmt.Fprintf(&w.out, "%s%s: %s\n", inner, f.Name(), attribute)
		}
		fmt.Fprintf(&arguments, ", %s: %s | None = ...", f.Name(), argument)
	}
	star := ""
	if arguments.Len() > 0 {
		star = ", *"
	}
	fmt.Fprintf(&w.out, "%sdef __init__(self%s%s%s) -> None: ...\n", inner, star, arguments.String(), extra)
}

// fieldTypes returns the type of the attribute of a field, and that of the argument of the constructor.
func (w *typesWriter) fieldTypes(f protoreflect.FieldDescriptor) (attribute, argument string) {
	switch {
	case f.IsMap():
		key, _ := w.valueTypes(f.MapKey())
		value, wide := w.valueTypes(f.MapValue())
		container := "ScalarMap"
		if f.MapValue().Message() != nil {
			container = "MessageMap"
		}
		return fmt.Sprintf("_containers.%s[%s, %s]", container, key, value), fmt.Sprintf("_Mapping[%s, %s]", key, wide)
	case f.IsList():
		item, wide := w.valueTypes(f)
		container := "RepeatedScalarFieldContainer"
		if f.Message() != nil {
			container = "RepeatedCompositeFieldContainer"
		}
		return fmt.Sprintf("_containers.%s[%s]", container, item), fmt.Sprintf("_Iterable[%s]", wide)
	}
	return w.valueTypes(f)
}

// valueTypes returns the type of one value, and what a constructor takes for it.
func (w *typesWriter) valueTypes(f protoreflect.FieldDescriptor) (exact, wide string) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		exact = w.qualified(f.Message())
		return exact, exact + " | _Mapping[str, _Any]"
	case protoreflect.EnumKind:
		exact = w.qualified(f.Enum())
		return exact, exact + " | str"
	case protoreflect.BoolKind:
		exact = "bool"
	case protoreflect.StringKind:
		exact = "str"
	case protoreflect.BytesKind:
		exact = "bytes"
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		exact = "float"
	default:
		exact = "int"
	}
	return exact, exact
}

// qualified returns the name of a message or an enum as this module reaches it.
func (w *typesWriter) qualified(d protoreflect.Descriptor) string {
	file := d.ParentFile()
	name := strings.TrimPrefix(string(d.FullName()), string(file.Package())+".")
	if file.Path() == w.file.Path() {
		return name
	}
	return "_" + strings.TrimSuffix(path.Base(file.Path()), ".proto") + "_pb2." + name
}
