// Command openapi merges the OpenAPI documents of protoc-gen-openapiv3, one for each service, into one:
//
//	openapi DIR >proto/gateway/openapi.json
//
// It names the parts of resource names in paths: the plugin derives {name} and {name_1} from the field, this command
// writes {namespace} and {job}.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

type object = map[string]any

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: openapi DIR")
	}
	merged := newDocument()
	err := filepath.WalkDir(args[0], func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".openapi.json") {
			return err
		}
		return mergeFile(merged, path)
	})
	if err != nil {
		return err
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(merged); err != nil {
		return err
	}
	_, err = out.Write(text.Bytes())
	return err
}

func newDocument() object {
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Fermata", "version": "v1",
			"description": "Distributed job scheduler. docs/rest.md has the rules of paths, errors, headers and events.",
			"license":     object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"paths": object{},
		"components": object{
			"schemas":         object{},
			"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}},
		},
		// Nodes that do not authenticate callers need no token.
		"security": []any{object{"bearer": []any{}}, object{}},
		"tags":     []any{},
	}
}

func mergeFile(merged object, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var d struct {
		Paths      object
		Components struct{ Schemas object }
		Tags       []any
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for path, item := range d.Paths {
		named, item, err := nameParameters(path, item.(object))
		if err != nil {
			return err
		}
		if err := mergePath(merged["paths"].(object), named, item); err != nil {
			return err
		}
	}
	schemas := merged["components"].(object)["schemas"].(object)
	for name, schema := range d.Components.Schemas {
		if have, ok := schemas[name]; ok && !reflect.DeepEqual(have, schema) {
			return fmt.Errorf("%s: schema %s differs from that of another document", path, name)
		}
		schemas[name] = schema
	}
	merged["tags"] = append(merged["tags"].([]any), d.Tags...)
	return nil
}

// mergePath adds the methods of a path.
func mergePath(paths object, path string, item object) error {
	have, ok := paths[path].(object)
	if !ok {
		paths[path] = item
		return nil
	}
	for method, operation := range item {
		if _, ok := have[method]; ok {
			return fmt.Errorf("%s %s: two methods have this path", method, path)
		}
		have[method] = operation
	}
	return nil
}

// collections are the names of path parameters, by the collection before them.
var collections = map[string]string{
	"namespaces": "namespace", "jobs": "job", "runs": "run", "queues": "queue", "shards": "shard", "webhooks": "webhook",
	"auditExports": "export", "revisions": "revision", "deadLetters": "deadLetter",
}

var parameter = regexp.MustCompile(`([A-Za-z]+)/\{([^}]+)\}`)

// nameParameters renames the parameters of a path, in the path and in its operations.
func nameParameters(path string, item object) (string, object, error) {
	names := map[string]string{}
	for _, m := range parameter.FindAllStringSubmatch(path, -1) {
		name, ok := collections[m[1]]
		if !ok {
			return "", nil, fmt.Errorf("%s: no name is known for the parameter after %s", path, m[1])
		}
		names[m[2]] = name
	}
	for _, operation := range item {
		parameters, _ := operation.(object)["parameters"].([]any)
		for _, p := range parameters {
			p := p.(object)
			if name, ok := names[p["name"].(string)]; ok && p["in"] == "path" {
				p["name"], p["description"] = name, "Id of the "+name+"."
			}
		}
	}
	for old, name := range names {
		path = strings.ReplaceAll(path, "{"+old+"}", "{"+name+"}")
	}
	return path, item, nil
}
