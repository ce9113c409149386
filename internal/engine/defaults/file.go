package defaults

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
	"github.com/fermata-io/fermata/internal/lib/spelling"
	"github.com/fermata-io/fermata/internal/lib/yamldoc"
)

// Limits of a file.
const (
	maxFile    = 1 << 20
	maxFaults  = 50
	maxPresets = 256

	maxDescription = 256
)

// Flags are the fields that flags of a node set for the cluster, with the names of the flags.
var Flags = map[backoff.Field]string{
	backoff.RetryBase:          "retry-base-delay",
	backoff.RetryMultiplier:    "retry-multiplier",
	backoff.RetryMaxDelay:      "retry-max-delay",
	backoff.RetryMaxAttempts:   "max-attempts",
	backoff.BackoffMultiplier:  "backoff-multiplier",
	backoff.BackoffMaxExponent: "backoff-max-exponent",
	backoff.BackoffMaxDelay:    "backoff-max-delay",
}

// Load reads a file; "" is none. Flags are the fields that flags set.
func Load(path string, flags backoff.Layer) (*backoff.Defaults, error) {
	d := &backoff.Defaults{Cluster: backoff.Layer{Source: backoff.Source{Kind: backoff.FromCluster}}}
	if path != "" {
		text, err := secretfile.Read(path, maxFile)
		if err != nil {
			return nil, fmt.Errorf("--defaults-file: %w", err)
		}
		d, err = parseFile(text)
		if err != nil {
			return nil, fmt.Errorf("--defaults-file %s: %w", path, err)
		}
	}
	d.Cluster = d.Cluster.With(flags)
	var faults []error
	for _, e := range d.Validate() {
		faults = append(faults, errors.New(describePlace(e.Field, flags.Set, path)+": "+e.Reason))
	}
	return d, errors.Join(faults...)
}

// describePlace returns where an invalid field is set: a flag, or a path of the file.
func describePlace(field string, flags backoff.FieldSet, path string) string {
	if f, ok := backoff.FieldByPath(strings.TrimPrefix(field, "cluster.")); ok && flags.Has(f) {
		return "--" + Flags[f]
	}
	return "--defaults-file " + path + ": " + field
}

// fileReader reads the file and collects its errors.
type fileReader struct {
	faults  []error
	presets map[string]backoff.OwnPreset
}

func (r *fileReader) addFault(n *yaml.Node, path, format string, args ...any) {
	if len(r.faults) < maxFaults {
		r.faults = append(r.faults, fmt.Errorf("line %d: %s: %s", n.Line, path, fmt.Sprintf(format, args...)))
	}
}

func parseFile(text []byte) (*backoff.Defaults, error) {
	documents := yamldoc.NewReader(text, new(yamldoc.Budget))
	d := &backoff.Defaults{
		Cluster:    backoff.Layer{Source: backoff.Source{Kind: backoff.FromCluster}},
		Namespaces: map[string]backoff.Layer{}, Queues: map[backoff.QueueName]backoff.Layer{},
		Presets: map[string]backoff.OwnPreset{},
	}
	top, err := documents.Next()
	switch {
	case yamldoc.Ended(err):
		return d, nil
	case err != nil:
		return nil, err
	}
	if _, err := documents.Next(); !yamldoc.Ended(err) {
		return nil, errors.New("it holds more than one document")
	}
	r := &fileReader{presets: d.Presets}
	scopes := map[string]*yaml.Node{}
	if len(top.Content) > 0 {
		r.visitKnown(top.Content[0], "the top level", []string{"cluster", "namespaces", "queues", "presets"},
			func(key string, value *yaml.Node) { scopes[key] = value })
	}
	r.visitMapping(scopes["presets"], "presets", func(name, path string, n *yaml.Node) { r.readPreset(name, path, n) })
	if n := scopes["cluster"]; n != nil {
		d.Cluster = r.readLayer(d.Cluster.Source, "cluster", n, nil)
	}
	r.visitMapping(scopes["namespaces"], "namespaces", func(name, path string, n *yaml.Node) {
		if v := job.ValidateKey(job.Key{Namespace: name, ID: "x"}); len(v) > 0 {
			r.addFault(n, path, "%s", v[0].Description)
		}
		d.Namespaces[name] = r.readLayer(backoff.Source{Kind: backoff.FromNamespace, Name: name}, path, n, nil)
	})
	r.visitMapping(scopes["queues"], "queues", func(name, path string, n *yaml.Node) {
		namespace, queue, ok := strings.Cut(name, "/")
		q := job.QueueKey{Namespace: namespace, Queue: queue}
		if v := job.ValidateQueue(q); !ok || len(v) > 0 {
			r.addFault(n, path, "want the name of a queue as namespace/queue")
		}
		d.Queues[backoff.QueueName{Namespace: namespace,
			Queue: queue}] = r.readLayer(backoff.Source{Kind: backoff.FromQueue, Name: queue}, path, n, nil)
	})
	return d, errors.Join(r.faults...)
}

func (r *fileReader) readPreset(name, path string, n *yaml.Node) {
	if len(r.presets) == maxPresets {
		r.addFault(n, path, "there are more than %d presets", maxPresets)
		return
	}
	own := backoff.OwnPreset{}
	own.Layer = r.readLayer(backoff.Source{Kind: backoff.FromPreset, Name: name}, path, n, &own.Description)
	r.presets[name] = own
}

// readLayer reads the policies of one scope. Description is where that of a preset goes; nil: the scope
// has none. Presets may name built-in ones only, other scopes those of the file as well.
func (r *fileReader) readLayer(source backoff.Source, path string, n *yaml.Node, description *string) backoff.Layer {
	l := backoff.Layer{Source: source}
	keys := []string{"retry_policy", "backoff_policy"}
	if description != nil {
		keys = append(keys, "description")
	}
	r.visitKnown(n, path, keys, func(key string, value *yaml.Node) {
		at := path + "." + key
		if key == "description" {
			if err := value.Decode(description); err != nil || len(*description) > maxDescription {
				r.addFault(value, at, "want text of at most %d bytes", maxDescription)
			}
			return
		}
		base, set := r.readPolicy(key, at, value, description == nil)
		base = base.With(set)
		base.Source = source
		l = l.With(base)
	})
	return l
}

// readPolicy reads one policy: its preset, and the fields that it sets.
func (r *fileReader) readPolicy(policy, path string, n *yaml.Node, own bool) (base, set backoff.Layer) {
	part := backoff.RetryFields
	if policy == "backoff_policy" {
		part = backoff.BackoffFields
	}
	known := []string{"preset"}
	for f := range backoff.FieldCount {
		if part.Has(f) {
			known = append(known, f.Name())
		}
	}
	r.visitKnown(n, path, known, func(key string, value *yaml.Node) {
		if key == "preset" {
			base = r.findPreset(path+".preset", value, part, own)
			return
		}
		f, _ := backoff.FieldByPath(policy + "." + key)
		if err := setters[f](&set.Values, value); err != nil {
			r.addFault(value, path+"."+key, "%v", err)
			return
		}
		set.Set = set.Set.With(f)
	})
	return base, set
}

// findPreset finds the part of a preset.
func (r *fileReader) findPreset(path string, n *yaml.Node, part backoff.FieldSet, own bool) backoff.Layer {
	d := &backoff.Defaults{}
	if own {
		d.Presets = r.presets
	}
	l, ok := d.Preset(n.Value)
	if !ok || l.Set&part == 0 {
		r.addFault(n, path, "unknown preset %s", job.Clip(n.Value, 80))
	}
	l.Set &= part
	return l
}

// visitKnown visits the entries of a mapping with known keys.
func (r *fileReader) visitKnown(n *yaml.Node, path string, known []string, take func(key string, value *yaml.Node)) {
	r.visitMapping(n, path, func(key, at string, value *yaml.Node) {
		switch near := spelling.Nearest(key, known); {
		case slices.Contains(known, key):
			take(key, value)
		case near != "":
			r.addFault(value, at, "unknown key; did you mean %s?", near)
		default:
			r.addFault(value, at, "unknown key; want %s", strings.Join(known, ", "))
		}
	})
}

// visitMapping goes through a mapping; nil and null are empty ones.
func (r *fileReader) visitMapping(n *yaml.Node, path string, take func(key, path string, value *yaml.Node)) {
	n = resolveAlias(n)
	if n == nil || n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.addFault(n, path, "want a mapping")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := path + "." + job.Clip(key.Value, 130)
		if path == "the top level" {
			at = job.Clip(key.Value, 130)
		}
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			r.addFault(key, path, "has a key that is no plain text")
		case seen[key.Value]:
			r.addFault(key, at, "occurs twice")
		default:
			seen[key.Value] = true
			take(key.Value, at, resolveAlias(n.Content[i+1]))
		}
	}
}

// resolveAlias returns what an alias stands for.
func resolveAlias(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
