package backoff

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// QueueName names a queue of a namespace.
type QueueName struct{ Namespace, Queue string }

// OwnPreset is a preset that an operator has defined. It may set single fields.
type OwnPreset struct {
	Description string
	Layer       Layer
}

// Defaults are the waits that an operator sets for jobs that set none. They are resolved when a job is
// registered. The zero value and nil set nothing.
type Defaults struct {
	Cluster    Layer
	Namespaces map[string]Layer
	Queues     map[QueueName]Layer
	Presets    map[string]OwnPreset
}

// Empty reports whether nothing is set for jobs that name no preset.
func (d *Defaults) Empty() bool {
	return d == nil || d.Cluster.Set == 0 && len(d.Namespaces) == 0 && len(d.Queues) == 0
}

// Layers returns what is set for the jobs of a queue, the weakest first.
func (d *Defaults) Layers(namespace, queue string) []Layer {
	if d.Empty() {
		return nil
	}
	layers := make([]Layer, 0, 3)
	if d.Cluster.Set != 0 {
		layers = append(layers, d.Cluster)
	}
	if l, ok := d.Namespaces[namespace]; ok {
		layers = append(layers, l)
	}
	if l, ok := d.Queues[QueueName{namespace, queue}]; ok {
		layers = append(layers, l)
	}
	return layers
}

// Preset finds a preset, built in or the operator's own, as a layer.
func (d *Defaults) Preset(name string) (Layer, bool) {
	if p, ok := PresetByName(name); ok {
		return p.Layer(), true
	}
	if d == nil {
		return Layer{}, false
	}
	own, ok := d.Presets[name]
	return own.Layer, ok
}

// IsCustom reports whether a preset is the operator's own.
func (d *Defaults) IsCustom(name string) bool {
	if d == nil {
		return false
	}
	_, own := d.Presets[name]
	_, builtin := PresetByName(name)
	return own && !builtin
}

// Layer returns the preset as a layer: one that has a policy sets all fields of it.
func (p Preset) Layer() Layer {
	l := Layer{Source: Source{FromPreset, p.Name}}
	if p.Retry != nil {
		l.Set |= RetryFields
		l.Values.Retry = *p.Retry
	}
	if p.Recurring != nil {
		l.Set |= BackoffFields
		l.Values.Recurring, l.Values.MinInterval = *p.Recurring, p.MinInterval
	}
	return l
}

// AllPresets lists the built-in presets, then the operator's own by name. Fields that an own preset does not set
// have the built-in defaults.
func (d *Defaults) AllPresets() []Preset {
	list := Presets()
	if d == nil {
		return list
	}
	for _, name := range slices.Sorted(maps.Keys(d.Presets)) {
		own := d.Presets[name]
		p, _ := Resolve(DefaultPolicies(false), own.Layer)
		shown := Preset{Name: name, Description: own.Description, MinInterval: p.MinInterval}
		if own.Layer.Set&RetryFields != 0 {
			shown.Retry = &p.Retry
		}
		if own.Layer.Set&BackoffFields != 0 {
			shown.Recurring = &p.Recurring
		}
		list = append(list, shown)
	}
	return list
}

// Validate lists invalid fields, with paths such as namespaces.team-a.retry_policy.max_attempts.
func (d *Defaults) Validate() []FieldError {
	if d == nil {
		return nil
	}
	var list []FieldError
	cluster := validateLayers(d.Cluster)
	add := func(scope string, known []FieldError, layers ...Layer) {
		for _, e := range validateLayers(layers...) {
			if !slices.Contains(known, e) {
				list = append(list, FieldError{Field: scope + "." + e.Field, Reason: e.Reason})
			}
		}
	}
	add("cluster", nil, d.Cluster)
	for _, name := range slices.Sorted(maps.Keys(d.Namespaces)) {
		add("namespaces."+name, cluster, d.Cluster, d.Namespaces[name])
	}
	byName := func(a, b QueueName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Queue, b.Queue))
	}
	for _, q := range slices.SortedFunc(maps.Keys(d.Queues), byName) {
		known := slices.Concat(cluster, validateLayers(d.Cluster, d.Namespaces[q.Namespace]))
		add("queues."+q.Namespace+"/"+q.Queue, known, d.Cluster, d.Namespaces[q.Namespace], d.Queues[q])
	}
	for _, name := range slices.Sorted(maps.Keys(d.Presets)) {
		scope := "presets." + name
		if _, builtin := PresetByName(name); builtin {
			list = append(list, FieldError{Field: scope, Reason: "is the name of a built-in preset, which keeps " +
				"its meaning; choose another name"})
		}
		if !(Source{FromPreset, name}).isValid() {
			list = append(list, FieldError{Field: scope, Reason: fmt.Sprintf("want a name of 1 to %d visible ASCII "+
				"characters without spaces", MaxSourceName)})
		}
		if d.Presets[name].Layer.Set == 0 {
			list = append(list, FieldError{Field: scope, Reason: "sets nothing"})
		}
		add(scope, cluster, d.Cluster, d.Presets[name].Layer)
	}
	return list
}

func validateLayers(layers ...Layer) []FieldError {
	p, from := Resolve(DefaultPolicies(false), layers...)
	list := p.Validate()
	if p.Recurring.WithinSlot && from[BackoffWithinSlot].Kind < FromJob {
		list = append(list, FieldError{Field: BackoffWithinSlot.Path(),
			Reason: "depends on the schedule of a job: set it in jobs"})
	}
	return slices.CompactFunc(list, func(a, b FieldError) bool { return a.Field == b.Field })
}

// Fingerprint returns the same for defaults that mean the same. Nodes compare theirs.
func (d *Defaults) Fingerprint() string {
	var lines []string
	note := func(scope string, l Layer) {
		for f := range FieldCount {
			if l.Set.Has(f) {
				lines = append(lines, fmt.Sprintf("%q %s %s", scope, f.Path(), f.Text(&l.Values)))
			}
		}
	}
	if d != nil {
		note("cluster", d.Cluster)
		for name, l := range d.Namespaces {
			note("namespace "+name, l)
		}
		for q, l := range d.Queues {
			note("queue "+q.Namespace+"/"+q.Queue, l)
		}
		for name, p := range d.Presets {
			note("preset "+name, p.Layer)
		}
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:4])
}
