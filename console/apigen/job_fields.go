package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// fieldInfo is what a form needs to know of a field of a job.
type fieldInfo struct {
	Kind string `json:"kind"`
	Help string `json:"help,omitempty"`
	// Default is what an unset field means, as the comment of the field says it.
	Default string   `json:"default,omitempty"`
	Values  []string `json:"values,omitempty"`
	Message string   `json:"message,omitempty"`
	Oneof   bool     `json:"oneof,omitempty"`
}

// writeJobMessages writes the fields of a job and of the messages within it: kinds from the protos, texts from the
// OpenAPI document.
func writeJobMessages(b *bytes.Buffer, d document) error {
	b.WriteString("\n/** FieldInfo is what a form needs to know of a field. */\nexport interface FieldInfo {\n" +
		"  kind: \"text\" | \"choice\" | \"flag\" | \"number\" | \"whole\" | \"duration\" | " +
		"\"time\" | \"bytes\" | \"json\" | \"texts\" | \"numbers\"\n" +
		"    | \"labels\" | \"message\" | \"messages\" | \"output\";\n" +
		"  help?: string;\n  /** default is what an unset field means. */\n  default?: string;\n  values?: string[];\n" +
		"  /** message is the type of the fields within. */\n  message?: string;\n" +
		"  /** oneof: only one of the fields with this mark may be set. */\n  oneof?: boolean;\n}\n" +
		"\n/** jobMessages are the fields of a job and of the messages within it, in the order of the API. */\n" +
		"export const jobMessages: Record<string, Record<string, FieldInfo>> = {\n")
	queue := []protoreflect.MessageDescriptor{(&fermatav1.Job{}).ProtoReflect().Descriptor()}
	seen := map[protoreflect.FullName]bool{queue[0].FullName(): true}
	for len(queue) > 0 {
		m := queue[0]
		queue = queue[1:]
		fmt.Fprintf(b, "  %s: {\n", typeName(string(m.FullName())))
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			info := describeField(f, d.Components.Schemas[string(m.FullName())])
			if inner := f.Message(); info.Message != "" && !seen[inner.FullName()] {
				seen[inner.FullName()] = true
				queue = append(queue, inner)
			}
			text, err := json.Marshal(info)
			if err != nil {
				return err
			}
			fmt.Fprintf(b, "    %s: %s,\n", f.JSONName(), text)
		}
		b.WriteString("  },\n")
	}
	b.WriteString("};\n")
	return nil
}

var defaultInHelp = regexp.MustCompile(`\bDefault:? (.+?)\.(\s|$)`)

func describeField(f protoreflect.FieldDescriptor, s *schema) fieldInfo {
	var help string
	if s != nil && s.Properties[f.JSONName()] != nil {
		help = strings.ReplaceAll(s.Properties[f.JSONName()].Description, "\n", " ")
	}
	if strings.HasPrefix(help, "Output only: ") || f.Name() == "etag" || f.Name() == "name" && f.Parent().Name() == "Job" {
		return fieldInfo{Kind: "output"}
	}
	info := fieldInfo{Kind: kindOfField(f), Help: help}
	if one := f.ContainingOneof(); one != nil && !one.IsSynthetic() {
		info.Oneof = true
	}
	if m := defaultInHelp.FindStringSubmatch(help); m != nil {
		info.Default = m[1]
	}
	if info.Kind == "choice" {
		for i := range f.Enum().Values().Len() {
			info.Values = append(info.Values, string(f.Enum().Values().Get(i).Name()))
		}
	}
	if info.Kind == "message" || info.Kind == "messages" {
		info.Message = typeName(string(f.Message().FullName()))
	}
	return info
}

func kindOfField(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "labels"
	case f.IsList() && f.Kind() == protoreflect.MessageKind:
		return "messages"
	case f.IsList() && f.Kind() == protoreflect.StringKind:
		return "texts"
	case f.IsList():
		return "numbers"
	}
	switch f.Kind() {
	case protoreflect.MessageKind:
		return kindOfMessage(f.Message())
	case protoreflect.EnumKind:
		return "choice"
	case protoreflect.BoolKind:
		return "flag"
	case protoreflect.BytesKind:
		return "bytes"
	case protoreflect.DoubleKind:
		return "number"
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return "whole"
	}
	return "text"
}

func kindOfMessage(m protoreflect.MessageDescriptor) string {
	switch m.FullName() {
	case "google.protobuf.Duration":
		return "duration"
	case "google.protobuf.Timestamp":
		return "time"
	case "google.protobuf.Value":
		return "json"
	}
	return "message"
}
