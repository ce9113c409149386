package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// maxConfigFile bounds the size of a configuration file, in bytes.
const maxConfigFile = 1 << 20

// setFromFile sets flags that neither the command line nor the environment has set. The file may name the access
// file, the tokens and the addresses that they are sent to, so that others must not be able to write it.
func setFromFile(flags *pflag.FlagSet, path string) error {
	text, err := secretfile.Read(path, maxConfigFile)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	var document yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("configuration file %s: it contains more than one document; only one is allowed", path)
	}
	if len(document.Content) == 0 {
		return nil
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("configuration file %s: the top level must map names of flags to values", path)
	}
	from := "file " + path
	if flags.Lookup(contextFlag) == nil {
		return setFromMapping(flags, path, from, top)
	}
	contexts, settings, err := splitContexts(top)
	if err == nil {
		err = contexts.apply(flags, path)
	} else {
		err = fmt.Errorf("configuration file %s, %w", path, err)
	}
	return errors.Join(err, setFromMapping(flags, path, from, settings))
}

// setFromMapping sets flags from a mapping of a file. The source is for [SourceOf].
func setFromMapping(flags *pflag.FlagSet, path, source string, mapping *yaml.Node) error {
	var faults []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		f := flagOf(flags, key.Value)
		name := key.Value
		if f != nil {
			name = f.Name
		}
		changed := f != nil && f.Changed
		err := setFromNode(flags, f, key.Value, value)
		switch {
		case seen[name] && name == key.Value:
			err = errors.New("occurs twice")
		case seen[name]:
			err = fmt.Errorf("is another name of %s, which occurs twice", name)
		}
		seen[name] = true
		if err != nil {
			faults = append(faults, fmt.Errorf("configuration file %s, line %d: %s: %w", path, key.Line, key.Value,
				err))
		} else if !changed {
			setSource(f, source)
		}
	}
	return errors.Join(faults...)
}

// flagOf returns the flag with a name or further name; nil: there is none.
func flagOf(flags *pflag.FlagSet, key string) *pflag.Flag {
	found := flags.Lookup(key)
	flags.VisitAll(func(f *pflag.Flag) {
		if found == nil && slices.Contains(f.Annotations[otherNames], key) {
			found = f
		}
	})
	return found
}

func setFromNode(flags *pflag.FlagSet, f *pflag.Flag, key string, value *yaml.Node) error {
	if f == nil || key == "help" || key == fileFlag || key == contextFlag {
		return unknownKey(flags, key)
	}
	if f.Changed {
		return nil
	}
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	switch value.Kind {
	case yaml.SequenceNode:
		items, err := scalarValues(value.Content)
		if err != nil {
			return err
		}
		return assignList(f, items)
	case yaml.MappingNode:
		return assignMap(flags, f, value.Content)
	case yaml.ScalarNode:
		if value.Tag == "!!null" {
			return errors.New("has no value")
		}
		return assignText(flags, f, value.Value)
	}
	return errors.New("has a value of an unknown kind")
}

func assignMap(flags *pflag.FlagSet, f *pflag.Flag, content []*yaml.Node) error {
	if !strings.HasPrefix(f.Value.Type(), "stringTo") {
		return errors.New("takes no mapping")
	}
	items, err := scalarValues(content)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(items); i += 2 {
		if err := flags.Set(f.Name, quoteCSV(items[i]+"="+items[i+1])); err != nil {
			return err
		}
	}
	return nil
}

// quoteCSV protects commas, as map flags read their text as CSV.
func quoteCSV(s string) string {
	if !strings.ContainsAny(s, ",\"\n") {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}

func scalarValues(nodes []*yaml.Node) ([]string, error) {
	out := make([]string, 0, len(nodes))
	for _, n := range nodes {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			return nil, fmt.Errorf("line %d: must be a plain value", n.Line)
		}
		out = append(out, n.Value)
	}
	return out, nil
}

// maxSecretBytes bounds secret files, so that a wrong path is noticed early.
const maxSecretBytes = 64 << 10

// ReadSecretFile returns the content of a file without trailing line breaks. The names of flags for such files
// end in -file. An empty file, one of more than 64 KiB, and one that any user may write are errors. An empty
// path returns "" and no error.
func ReadSecretFile(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := secretfile.Read(path, maxSecretBytes)
	if err != nil {
		return "", fmt.Errorf("secret file: %w", err)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("secret file %s: holds nothing", path)
	}
	return secret, nil
}
