package python

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

var update = flag.Bool("update", false, "write the modules of fermata/v1")

// messages is the package of the generated modules.
const messages = "fermata/v1"

// protos are the files of the public API; a file comes after those that it imports.
var protos = []protoreflect.FileDescriptor{
	fermatav1.File_fermata_v1_bulk_proto, fermatav1.File_fermata_v1_forecast_proto, fermatav1.File_fermata_v1_limits_proto,
	fermatav1.File_fermata_v1_job_proto, fermatav1.File_fermata_v1_job_revision_proto,
	fermatav1.File_fermata_v1_access_service_proto, fermatav1.File_fermata_v1_backup_service_proto,
	fermatav1.File_fermata_v1_cluster_service_proto, fermatav1.File_fermata_v1_event_service_proto,
	fermatav1.File_fermata_v1_job_service_proto, fermatav1.File_fermata_v1_worker_service_proto,
}

// The modules have the form that protoc 3.20 and later write, so that they need no protoc here.
func TestStubsAreCurrent(t *testing.T) {
	want := map[string]string{"__init__.py": packageModule()}
	for _, file := range protos {
		module := moduleOf(file.Path())
		code, err := moduleCode(file)
		if err != nil {
			t.Fatal(err)
		}
		want[module+".py"], want[module+".pyi"] = code, typesCode(file)
	}
	have, err := filepath.Glob(messages + "/*.py*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range have {
		if want[filepath.Base(file)] == "" {
			t.Errorf("%s is not generated: remove it", file)
		}
	}
	for name, code := range want {
		checkFile(t, filepath.Join(messages, name), code)
	}
}

// checkFile compares a file with what it should have, and writes it with -update.
func checkFile(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	if string(have) != want {
		t.Errorf("%s is not current: run go test ./sdk/python -update", file)
	}
}

const generated = `"""Generated from proto/%s by go test ./sdk/python -update. DO NOT EDIT."""

`

// moduleOf returns the name of the module of a proto file: job_pb2 for fermata/v1/job.proto.
func moduleOf(file string) string { return strings.TrimSuffix(path.Base(file), ".proto") + "_pb2" }

// importOf returns the statement that imports the module of a proto file as _NAME.
func importOf(file string) string {
	return fmt.Sprintf("from %s import %s as _%[2]s\n", strings.ReplaceAll(path.Dir(file), "/", "."), moduleOf(file))
}

func packageModule() string {
	out := fmt.Sprintf(generated, messages)
	for _, file := range protos {
		out += fmt.Sprintf("from fermata.v1.%s import *  # noqa: F403\n", moduleOf(file.Path()))
	}
	return out
}

// importsOf lists the imports of a file without the options of the REST API.
func importsOf(file protoreflect.FileDescriptor) []string {
	var out []string
	for i := range file.Imports().Len() {
		if p := file.Imports().Get(i).Path(); !strings.HasPrefix(p, "google/api/") {
			out = append(out, p)
		}
	}
	return out
}

// moduleCode returns the module of a file, with its descriptor in serialized form.
func moduleCode(file protoreflect.FileDescriptor) (string, error) {
	descriptor := protodesc.ToFileDescriptorProto(file)
	descriptor.Options = nil // of the Go code
	descriptor.Dependency = importsOf(file)
	for _, service := range descriptor.Service {
		for _, method := range service.Method {
			method.Options = nil // of the REST API
		}
	}
	for _, message := range descriptor.MessageType {
		dropJSONNames(message)
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(descriptor)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	fmt.Fprintf(&out, generated, file.Path())
	out.WriteString("from google.protobuf import descriptor_pool as _descriptor_pool\n" +
		"from google.protobuf.internal import builder as _builder\n\n")
	for _, p := range importsOf(file) {
		out.WriteString(importOf(p))
	}
	out.WriteString("\nDESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(\n")
	for line := range slices.Chunk(raw, 24) {
		out.WriteString("    b\"")
		for _, b := range line {
			if b >= ' ' && b < 0x7f && b != '"' && b != '\\' {
				out.WriteByte(b)
			} else {
				fmt.Fprintf(&out, `\x%02x`, b)
			}
		}
		out.WriteString("\"\n")
	}
	fmt.Fprintf(&out, ")\n_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())\n"+
		"_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, \"fermata.v1.%s\", globals())\n", moduleOf(file.Path()))
	return out.String(), nil
}

// dropJSONNames removes the names that readers derive themselves.
func dropJSONNames(message *descriptorpb.DescriptorProto) {
	for _, field := range message.Field {
		field.JsonName = nil
	}
	for _, nested := range message.NestedType {
		dropJSONNames(nested)
	}
}
