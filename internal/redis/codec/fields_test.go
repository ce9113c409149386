package codec

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// drawnFieldSet notes which fields of a type have been drawn with a value that is
// not zero: a round trip says nothing about the others.
type drawnFieldSet map[string]bool

func (f drawnFieldSet) note(v any) { f.walk("", reflect.ValueOf(v)) }

func (f drawnFieldSet) walk(path string, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			f.walk(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			f.walk(path, v.Index(i))
		}
	default:
		f[path] = f[path] || !v.IsZero()
	}
}

// complete fails the test for each field of the type that was never drawn, unless
// it is among the exceptions.
func (f drawnFieldSet) complete(t *testing.T, of reflect.Type, exceptions ...string) {
	t.Helper()
	for _, path := range leaves("", of) {
		if !f[path] && !slices.Contains(exceptions, path) {
			t.Errorf("%v%s was always zero: no round trip has shown that it is stored", of, path)
		}
	}
}

func leaves(path string, of reflect.Type) []string {
	switch {
	case of.Kind() == reflect.Struct && of != reflect.TypeFor[time.Time]():
		var all []string
		for i := range of.NumField() {
			all = append(all, leaves(path+"."+of.Field(i).Name, of.Field(i).Type)...)
		}
		return all
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct:
		return leaves(path, of.Elem())
	}
	return []string{path}
}

func TestDrawnFieldsSeeWhatIsMissing(t *testing.T) {
	type inner struct{ A, B int }
	type outer struct {
		X    string
		List []inner
		At   time.Time
	}
	if got, want := leaves("", reflect.TypeFor[outer]()), []string{".X", ".List.A", ".List.B", ".At"}; !slices.Equal(got, want) {
		t.Errorf("fields %v, want %v", got, want)
	}
	seen := drawnFieldSet{}
	seen.note(outer{X: "x", List: []inner{{A: 1}}})
	seen.note(outer{List: []inner{{}}})
	if !seen[".X"] || !seen[".List.A"] || seen[".List.B"] || seen[".At"] {
		t.Errorf("seen %v", seen)
	}
}
