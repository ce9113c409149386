package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/lib/privatefile"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// Context is one named set of settings.
type Context struct {
	Name    string
	Current bool
	// Settings are the values by flag, in order of the file; lists have several.
	Settings []Setting
}

// Setting is the value of one flag in a context.
type Setting struct {
	Flag   string
	Values []string
}

// Value returns the values of a flag; nil: it is not set.
func (c Context) Value(flag string) []string {
	for _, s := range c.Settings {
		if s.Flag == flag {
			return s.Values
		}
	}
	return nil
}

// ContextFile is a configuration file whose contexts are edited. Comments and other settings are kept.
type ContextFile struct {
	document yaml.Node
	table    contextTable
}

// ReadContexts reads the contexts of the file that the flags name, or of the default file. A missing file has none.
func ReadContexts(flags *pflag.FlagSet) ([]Context, error) {
	path, isDefault, err := FilePath(flags)
	if err != nil || path == "" {
		return nil, err
	}
	f, err := readContextFile(path, isDefault)
	if err != nil {
		return nil, err
	}
	return f.contexts(), nil
}

func readContextFile(path string, private bool) (*ContextFile, error) {
	f := &ContextFile{}
	var text []byte
	var err error
	if private {
		err = checkPrivate(path)
	}
	if err == nil {
		text, err = secretfile.Read(path, maxConfigFile)
	}
	if err != nil && !isMissing(path, err) {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&f.document); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) { // an edit would lose it
		return nil, fmt.Errorf("configuration file %s: it contains more than one document; only one is allowed", path)
	}
	if len(f.document.Content) == 0 {
		f.document = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	if f.top().Kind != yaml.MappingNode {
		return nil, fmt.Errorf("configuration file %s: the top level must map names to values", path)
	}
	if err := f.readTable(); err != nil {
		return nil, fmt.Errorf("configuration file %s, %w", path, err)
	}
	return f, nil
}

func (f *ContextFile) top() *yaml.Node { return f.document.Content[0] }

func (f *ContextFile) readTable() (err error) {
	f.table, _, err = splitContexts(f.top())
	return err
}

func (f *ContextFile) contexts() []Context {
	var out []Context
	for _, name := range f.table.names {
		c := Context{Name: name, Current: name == f.table.current}
		content := f.table.byName[name].Content
		for i := 0; i+1 < len(content); i += 2 {
			s := Setting{Flag: content[i].Value}
			value := resolveAlias(content[i+1])
			if value.Kind == yaml.ScalarNode {
				s.Values = []string{value.Value}
			}
			for _, item := range value.Content {
				s.Values = append(s.Values, item.Value)
			}
			c.Settings = append(c.Settings, s)
		}
		out = append(out, c)
	}
	return out
}

// lockTimeout bounds the wait for another process that edits the file.
const lockTimeout = 5 * time.Second

// EditContexts changes the contexts of a file in one step. It creates the file, and the directory of it, if there is
// none; other processes wait meanwhile. If edit fails, the file is unchanged.
func EditContexts(ctx context.Context, path string, edit func(*ContextFile) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	unlock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	f, err := readContextFile(path, true)
	if err != nil {
		return err
	}
	if err := edit(f); err != nil {
		return err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&f.document), encoder.Close()); err != nil {
		return err
	}
	return privatefile.Replace(path, out.Bytes())
}

// lockFile locks a file until unlock is called, also by the end of the process.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	if !privatefile.Supported {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	unlock, err = privatefile.Lock(ctx, path)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = fmt.Errorf("another process edits the configuration file: %w", err)
	}
	return unlock, err
}

// Current returns the name of the current context; "": there is none.
func (f *ContextFile) Current() string { return f.table.current }

// Has reports whether there is a context of that name.
func (f *ContextFile) Has(name string) bool { return f.table.byName[name] != nil }

// Set sets flags of a context, and removes others. It creates the context if there is none of that name.
func (f *ContextFile) Set(name string, set []*pflag.Flag, unset []string) error {
	if !contextName.MatchString(name) {
		return fmt.Errorf("context %.64q: want 1 to 63 letters, digits and . _ - @, beginning with a letter or digit", name)
	}
	contexts := mappingOf(f.top(), contextsKey)
	settings := mappingOf(contexts, name)
	for _, flag := range set {
		value := &yaml.Node{}
		if err := value.Encode(flagValue(flag)); err != nil {
			return err
		}
		setKey(settings, flag.Name, value)
	}
	for _, flag := range unset {
		if !removeKey(settings, flag) {
			return fmt.Errorf("context %s does not set %s", name, flag)
		}
	}
	return f.readTable()
}

// flagValue returns the value of a flag as a file has it.
func flagValue(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	if f.Value.Type() == "bool" {
		return f.Value.String() == "true"
	}
	return f.Value.String()
}

// Use makes a context the current one.
func (f *ContextFile) Use(name string) error {
	if !f.Has(name) {
		return f.table.unknown(name)
	}
	setKey(f.top(), currentKey, textNode(name))
	return f.readTable()
}

// Delete removes a context. If it is the current one, there is none then.
func (f *ContextFile) Delete(name string) error {
	if !f.Has(name) {
		return f.table.unknown(name)
	}
	removeKey(mappingOf(f.top(), contextsKey), name)
	if f.table.current == name {
		removeKey(f.top(), currentKey)
	}
	return f.readTable()
}

// mappingOf returns the mapping at a key. It creates the mapping if there is none, or only a null.
func mappingOf(in *yaml.Node, key string) *yaml.Node {
	at := keyIndex(in, key)
	if at < 0 {
		in.Content = append(in.Content, textNode(key), &yaml.Node{Kind: yaml.MappingNode})
		at = len(in.Content) - 2
	}
	value := in.Content[at+1]
	switch {
	case value.Kind == yaml.AliasNode: // the original stays as it is
		value = copyNode(value.Alias)
	case value.Kind != yaml.MappingNode:
		value = &yaml.Node{Kind: yaml.MappingNode}
	}
	in.Content[at+1] = value
	value.Style = 0
	return value
}

// copyNode copies a node with all below it, without its anchor.
func copyNode(n *yaml.Node) *yaml.Node {
	copied := *n
	copied.Anchor, copied.Content = "", make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		copied.Content[i] = copyNode(child)
	}
	return &copied
}

// textNode is a string, quoted if it would be read as another type.
func textNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

func setKey(mapping *yaml.Node, key string, value *yaml.Node) {
	if at := keyIndex(mapping, key); at >= 0 {
		mapping.Content[at+1] = value
		return
	}
	mapping.Content = append(mapping.Content, textNode(key), value)
}

func removeKey(mapping *yaml.Node, key string) bool {
	at := keyIndex(mapping, key)
	if at >= 0 {
		mapping.Content = slices.Delete(mapping.Content, at, at+2)
	}
	return at >= 0
}

func keyIndex(mapping *yaml.Node, key string) int {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return i
		}
	}
	return -1
}
