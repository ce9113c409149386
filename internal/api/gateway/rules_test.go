package gateway

import (
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestEveryMethodHasAPath holds the rules of paths: reads are GET and have no verb, because a job id may contain a
// colon; verbs are POST; changes of a resource are POST, PUT, PATCH or DELETE of its path.
func TestEveryMethodHasAPath(t *testing.T) {
	seen := map[string]string{}
	for _, file := range []protoreflect.FileDescriptor{
		fermatav1.File_fermata_v1_job_service_proto, fermatav1.File_fermata_v1_cluster_service_proto,
		fermatav1.File_fermata_v1_event_service_proto, fermatav1.File_fermata_v1_backup_service_proto,
		fermatav1.File_fermata_v1_access_service_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				checkRule(t, methods.Get(j), seen)
			}
		}
	}
	for _, file := range []protoreflect.FileDescriptor{
		fermatav1.File_fermata_v1_worker_service_proto, fermatav1.File_fermata_v1_peer_service_proto,
	} {
		for i := range file.Imports().Len() {
			if path := file.Imports().Get(i).Path(); strings.HasPrefix(path, "google/api/") {
				t.Errorf("%s imports %s: a worker in another language needs only this file", file.Path(), path)
			}
		}
	}
}

func checkRule(t *testing.T, m protoreflect.MethodDescriptor, seen map[string]string) {
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule == nil {
		t.Errorf("%s has no google.api.http annotation", m.FullName())
		return
	}
	for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		verb, path := ruleText(r)
		if other, ok := seen[verb+" "+path]; ok {
			t.Errorf("%s and %s have the path %s %s", m.FullName(), other, verb, path)
		}
		seen[verb+" "+path] = string(m.Name())
		if !strings.HasPrefix(path, "/v1/") {
			t.Errorf("%s: path %s", m.FullName(), path)
		}
		last := path[strings.LastIndexByte(path, '/')+1:]
		_, custom, _ := strings.Cut(strings.TrimSuffix(last[strings.LastIndexByte(last, '}')+1:], "}"), ":")
		if want := wantedVerb(string(m.Name()), custom); verb != want {
			t.Errorf("%s is %s %s, want %s", m.FullName(), verb, path, want)
		}
		if hasBody := verb == "POST" || verb == "PUT" || verb == "PATCH"; hasBody != (r.GetBody() != "") {
			t.Errorf("%s: body %q of %s", m.FullName(), r.GetBody(), verb)
		}
	}
}

// wantedVerb is the HTTP method for a name of a method and the verb of its path.
func wantedVerb(name, custom string) string {
	switch {
	case custom != "", name == "CreateJob":
		return "POST"
	case name == "UpdateQueueSettings":
		return "PUT"
	case strings.HasPrefix(name, "Update"):
		return "PATCH"
	case strings.HasPrefix(name, "Delete"), strings.HasPrefix(name, "Discard"):
		return "DELETE"
	}
	return "GET"
}

func ruleText(r *annotations.HttpRule) (verb, path string) {
	switch p := r.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return "GET", p.Get
	case *annotations.HttpRule_Put:
		return "PUT", p.Put
	case *annotations.HttpRule_Post:
		return "POST", p.Post
	case *annotations.HttpRule_Delete:
		return "DELETE", p.Delete
	case *annotations.HttpRule_Patch:
		return "PATCH", p.Patch
	}
	return "", ""
}
