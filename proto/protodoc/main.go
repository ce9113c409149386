// Command protodoc is a protoc plugin that writes pages of docs/reference from the protos:
// job.md, the fields of a job, and api.md, the services with their requests and answers.
// Types, defaults and bounds are those that the comments of the protos state.
package main

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	protogen.Options{}.Run(func(p *protogen.Plugin) error {
		p.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
		r := &reference{messages: map[protoreflect.FullName]*protogen.Message{}, files: p.Files}
		for _, f := range p.Files {
			r.indexMessages(f.Messages)
		}
		job := r.messages["fermata.v1.Job"]
		if job == nil {
			return nil // the request is for other protos
		}
		p.NewGeneratedFile("job.md", "").P(strings.TrimSuffix(r.renderJob(), "\n"))
		p.NewGeneratedFile("api.md", "").P(strings.TrimSuffix(r.renderServices(), "\n"))
		return nil
	})
}

// ourPackage has the protos that are documented. Others are interfaces of other projects.
const ourPackage = "fermata.v1"

// reference is the set of protos that one run has been given.
type reference struct {
	files    []*protogen.File
	messages map[protoreflect.FullName]*protogen.Message
	page     strings.Builder
}

func (r *reference) indexMessages(messages []*protogen.Message) {
	for _, m := range messages {
		r.messages[m.Desc.FullName()] = m
		r.indexMessages(m.Messages)
	}
}

const jobIntro = `# Fields of a job

Generated from ` + "`proto/fermata/v1/job.proto`" + `. The names are those of the API and ` +
	`of [job files](../jobs-as-configuration.md);
most flags of ` + "`fermata jobs create`" + ` have the same names with dashes. ` +
	`Durations are written as ` + "`90s`, `5m` or `24h`" + `.

`

func (r *reference) renderJob() string {
	r.page.Reset()
	r.page.WriteString(jobIntro)
	for _, m := range r.jobMessages() {
		r.writeMessage("## ", m)
	}
	return r.page.String()
}

// jobMessages are the messages of the page of jobs and runs, each once.
func (r *reference) jobMessages() []*protogen.Message {
	found := reachableFrom(r.messages["fermata.v1.Job"])
	for _, m := range reachableFrom(r.messages["fermata.v1.Run"]) {
		if !slices.Contains(found, m) {
			found = append(found, m)
		}
	}
	return found
}

const servicesIntro = `# API

Generated from ` + "`proto/fermata/v1`" + `. The messages of jobs and runs are on [their own page](job.md). ` +
	`Who may call what is in
[access](../security/access.md); how an error is reported is in [operations](../operations.md).

`

func (r *reference) renderServices() string {
	r.page.Reset()
	r.page.WriteString(servicesIntro)
	written := map[protoreflect.FullName]bool{}
	job := r.messages["fermata.v1.Job"]
	for _, m := range r.jobMessages() {
		written[m.Desc.FullName()] = m.Desc.ParentFile() == job.Desc.ParentFile()
	}
	for _, f := range r.files {
		if f.Desc.Package() != ourPackage {
			continue
		}
		for _, s := range f.Services {
			r.writeService(s, written)
		}
	}
	return r.page.String()
}

func (r *reference) writeService(s *protogen.Service, written map[protoreflect.FullName]bool) {
	fmt.Fprintf(&r.page, "## %s\n\n%s\n\n| method | over HTTP | request | answer | what it does |\n"+
		"| --- | --- | --- | --- | --- |\n",
		s.Desc.Name(), textOf(s.Comments.Leading))
	for _, m := range s.Methods {
		fmt.Fprintf(&r.page, "| `%s` | %s | %s | %s | %s |\n",
			m.Desc.Name(), httpOf(m), linkTo(m.Input, m.Desc.IsStreamingClient()),
			linkTo(m.Output, m.Desc.IsStreamingServer()), cellOf(m.Comments.Leading))
	}
	r.page.WriteString("\n")
	for _, m := range s.Methods {
		for _, root := range []*protogen.Message{m.Input, m.Output} {
			for _, message := range reachableFrom(root) {
				if !written[message.Desc.FullName()] && isOurs(message) {
					written[message.Desc.FullName()] = true
					r.writeMessage("### ", message)
				}
			}
		}
	}
}

// httpOf lists the paths of a method over HTTP.
func httpOf(m *protogen.Method) string {
	rule, ok := proto.GetExtension(m.Desc.Options(), annotations.E_Http).(*annotations.HttpRule)
	if !ok || rule == nil {
		return ""
	}
	var paths []string
	for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		verb, path := verbAndPath(r)
		paths = append(paths, "`"+verb+" "+path+"`")
	}
	return strings.Join(paths, "<br>")
}

func verbAndPath(r *annotations.HttpRule) (verb, path string) {
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

// reachableFrom returns a message and those that its fields refer to, in the order of the fields.
func reachableFrom(root *protogen.Message) []*protogen.Message {
	var found []*protogen.Message
	seen := map[protoreflect.FullName]bool{}
	var visit func(m *protogen.Message)
	visit = func(m *protogen.Message) {
		if m == nil || seen[m.Desc.FullName()] || !isOurs(m) {
			return
		}
		seen[m.Desc.FullName()] = true
		if !m.Desc.IsMapEntry() {
			found = append(found, m)
		}
		for _, f := range m.Fields {
			visit(f.Message)
		}
	}
	visit(root)
	return found
}

func isOurs(m *protogen.Message) bool { return m.Desc.ParentFile().Package() == ourPackage }

func (r *reference) writeMessage(heading string, m *protogen.Message) {
	fmt.Fprintf(&r.page, "%s%s\n\n", heading, nameOf(m))
	if text := textOf(m.Comments.Leading); text != "" {
		fmt.Fprintf(&r.page, "%s\n\n", text)
	}
	if len(m.Fields) == 0 {
		r.page.WriteString("No fields.\n\n")
		return
	}
	r.page.WriteString("| field | type | meaning, default and bounds |\n| --- | --- | --- |\n")
	for _, f := range m.Fields {
		meaning := cellOf(f.Comments.Leading)
		if f.Oneof != nil && !f.Oneof.Desc.IsSynthetic() {
			meaning = strings.TrimSpace("One of `" + string(f.Oneof.Desc.Name()) + "`. " + meaning)
		}
		if f.Enum != nil {
			meaning = strings.TrimSpace(meaning + " " + valuesOf(f.Enum))
		}
		fmt.Fprintf(&r.page, "| `%s` | %s | %s |\n", f.Desc.Name(), typeOf(f), meaning)
	}
	r.page.WriteString("\n")
}

// valuesOf lists the values of an enum with their comments.
func valuesOf(e *protogen.Enum) string {
	var values []string
	for _, v := range e.Values {
		if strings.HasSuffix(string(v.Desc.Name()), "_UNSPECIFIED") && v.Comments.Leading == "" {
			continue
		}
		value := "`" + string(v.Desc.Name()) + "`"
		if text := strings.TrimSuffix(cellOf(v.Comments.Leading), "."); text != "" {
			value += ": " + text
		}
		values = append(values, value)
	}
	return "<br>" + strings.Join(values, "<br>")
}

// nameOf is the name of a message with those of the messages around it.
func nameOf(m *protogen.Message) string {
	return strings.TrimPrefix(string(m.Desc.FullName()), "fermata.v1.")
}

func typeOf(f *protogen.Field) string {
	switch {
	case f.Desc.IsMap():
		return fmt.Sprintf("map of %s to %s", f.Message.Fields[0].Desc.Kind(), typeOfValue(f.Message.Fields[1]))
	case f.Desc.IsList():
		return "list of " + typeOfValue(f)
	}
	return typeOfValue(f)
}

func typeOfValue(f *protogen.Field) string {
	switch {
	case f.Enum != nil:
		return string(f.Enum.Desc.Name())
	case f.Message == nil:
		return f.Desc.Kind().String()
	case f.Message.Desc.FullName() == "google.protobuf.Duration":
		return "duration"
	case f.Message.Desc.FullName() == "google.protobuf.Timestamp":
		return "time"
	}
	return linkTo(f.Message, false)
}

func linkTo(m *protogen.Message, stream bool) string {
	name := nameOf(m)
	link := name
	if isOurs(m) {
		page := ""
		if m.Desc.ParentFile().Path() == "fermata/v1/job.proto" {
			page = "job.md"
		}
		link = fmt.Sprintf("[%s](%s#%s)", name, page, strings.ToLower(strings.ReplaceAll(name, ".", "")))
	}
	if stream {
		return "stream of " + link
	}
	return link
}

// textOf is a comment as a paragraph.
func textOf(c protogen.Comments) string {
	var paragraphs []string
	for _, p := range strings.Split(string(c), "\n\n") {
		if text := strings.Join(strings.Fields(p), " "); text != "" {
			paragraphs = append(paragraphs, escapeText(text))
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// cellOf is a comment as one cell of a table.
func cellOf(c protogen.Comments) string {
	return strings.ReplaceAll(strings.ReplaceAll(textOf(c), "\n\n", "<br>"), "|", `\|`)
}

// escapeText keeps a renderer from taking placeholders and products for markup, outside of code.
func escapeText(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`).Replace(parts[i])
	}
	return strings.Join(parts, "`")
}
