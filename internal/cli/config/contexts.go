package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/lib/privatefile"
	"github.com/fermata-io/fermata/internal/lib/spelling"
)

const (
	// contextFlag names the flag that selects a context. Commands without it have no contexts and no default file.
	contextFlag = "context"

	currentKey  = "current-context"
	contextsKey = "contexts"
)

// contextName is the form of the names of contexts.
var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$`)

// DefaultFile returns the path of the user's own configuration file.
func DefaultFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "fermata", "config.yaml"), nil
}

// FilePath returns the path of --config, or the default path if the flags have contexts; "" if there is none.
func FilePath(flags *pflag.FlagSet) (path string, isDefault bool, err error) {
	if f := flags.Lookup(fileFlag); f != nil && f.Value.String() != "" {
		return f.Value.String(), false, nil
	}
	if flags.Lookup(contextFlag) == nil {
		return "", false, nil
	}
	path, err = DefaultFile()
	if err != nil { // no home directory, so no file
		return "", false, missingFileError(flags, "")
	}
	return path, true, nil
}

// missingFileError is the error of a selected context without a file; nil if none is selected.
func missingFileError(flags *pflag.FlagSet, path string) error {
	name := flags.Lookup(contextFlag).Value.String()
	switch {
	case name == "":
		return nil
	case path == "":
		return fmt.Errorf("context %.64q: there is no home directory with a configuration file; name one by --config", name)
	}
	return fmt.Errorf("context %.64q: there is no file %s; create the context by fermata config set-context", name, path)
}

// checkPrivate refuses a file that others may read or write. Systems without file modes have no such check.
func checkPrivate(path string) error {
	if !privatefile.Supported {
		_, err := os.Stat(path)
		return err
	}
	file, err := privatefile.Open(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	return file.Close()
}

// contextTable is the part of a file with the contexts.
type contextTable struct {
	current string
	names   []string // in order of the file
	byName  map[string]*yaml.Node
}

// splitContexts separates the contexts of a file from its other settings.
func splitContexts(top *yaml.Node) (contextTable, *yaml.Node, error) {
	table := contextTable{byName: map[string]*yaml.Node{}}
	settings := *top
	settings.Content = nil
	var faults []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], resolveAlias(top.Content[i+1])
		isTable := key.Value == currentKey || key.Value == contextsKey
		switch {
		case isTable && seen[key.Value]:
			faults = append(faults, fmt.Errorf("line %d: %s: occurs twice", key.Line, key.Value))
		case key.Value == currentKey:
			if value.Kind != yaml.ScalarNode {
				faults = append(faults, fmt.Errorf("line %d: %s: want the name of a context", key.Line, key.Value))
				continue
			}
			if value.Tag != "!!null" {
				table.current = value.Value
			}
		case key.Value == contextsKey:
			faults = append(faults, table.read(value))
		default:
			settings.Content = append(settings.Content, key, top.Content[i+1])
		}
		seen[key.Value] = true
	}
	return table, &settings, errors.Join(faults...)
}

func resolveAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// read reads the mapping of names to contexts.
func (t *contextTable) read(mapping *yaml.Node) error {
	if mapping.Kind == yaml.ScalarNode && mapping.Tag == "!!null" {
		return nil
	}
	if mapping.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %s: must map names of contexts to settings", mapping.Line, contextsKey)
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], resolveAlias(mapping.Content[i+1])
		switch {
		case t.byName[key.Value] != nil:
			return fmt.Errorf("line %d: context %.64q: occurs twice", key.Line, key.Value)
		case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
			value = &yaml.Node{Kind: yaml.MappingNode, Line: value.Line}
		case value.Kind != yaml.MappingNode:
			return fmt.Errorf("line %d: context %.64q: must map names of flags to values", key.Line, key.Value)
		}
		t.names, t.byName[key.Value] = append(t.names, key.Value), value
	}
	return nil
}

// apply sets flags from the context that --context selects, or from the current one.
func (t *contextTable) apply(flags *pflag.FlagSet, path string) error {
	f := flags.Lookup(contextFlag)
	name := f.Value.String()
	if name == "" {
		name = t.current
	}
	if name == "" {
		return nil
	}
	settings := t.byName[name]
	if settings == nil {
		return fmt.Errorf("configuration file %s: %w", path, t.unknown(name))
	}
	for i := 0; i+1 < len(settings.Content); i += 2 {
		if set := flags.Lookup(settings.Content[i].Value); set != nil && set.Changed && fromEnvironment(set) {
			f.Annotations = appendAnnotation(f.Annotations, overriddenKey, set.Name)
		}
	}
	return setFromMapping(flags, path, "context "+name, settings)
}

// unknown is the error of a name without a context.
func (t *contextTable) unknown(name string) error {
	if near := spelling.Nearest(name, t.names); near != "" {
		return fmt.Errorf("there is no context %.64q; did you mean %s?", name, near)
	}
	return fmt.Errorf("there is no context %.64q; see fermata config get-contexts", name)
}

// overriddenKey is the annotation of --context with the flags of the context that the environment sets.
const overriddenKey = "fermata_overridden"

func appendAnnotation(all map[string][]string, key, value string) map[string][]string {
	if all == nil {
		all = map[string][]string{}
	}
	if !slices.Contains(all[key], value) {
		all[key] = append(all[key], value)
	}
	return all
}

// OverriddenByEnvironment returns the flags that the context in use sets, and that have their values from the
// environment instead.
func OverriddenByEnvironment(flags *pflag.FlagSet) []string {
	if f := flags.Lookup(contextFlag); f != nil {
		return f.Annotations[overriddenKey]
	}
	return nil
}
