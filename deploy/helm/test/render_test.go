package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

const (
	root     = "../../.."
	chartDir = root + "/deploy/helm/fermata"
)

// sets are the value files that stand for how the chart is used.
var sets = []string{"trying", "production", "everything"}

type values = map[string]any

var load = sync.OnceValues(func() (*chart.Chart, error) { return loader.Load(chartDir) })

// strict knows the types of Kubernetes and those of the custom resources, and refuses fields that they lack.
var strict = func() types {
	for _, add := range []func(*runtime.Scheme) error{cmv1.AddToScheme, monitoringv1.AddToScheme, gatewayv1.Install} {
		utilruntime.Must(add(scheme.Scheme))
	}
	return types{serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()}
}()

type types struct{ runtime.Decoder }

func (types) knows(o *unstructured.Unstructured) bool {
	return scheme.Scheme.Recognizes(o.GroupVersionKind())
}

func set(t *testing.T, name string) values {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("values", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var v values
	if err := yaml.UnmarshalStrict(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// parse reads values written in a test.
func parse(t *testing.T, text string) values {
	t.Helper()
	var v values
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// render is what helm install does up to the API server: values are coalesced and held against the schema, templates
// executed.
func render(v values) (map[string]string, error) {
	c, err := load()
	if err != nil {
		return nil, err
	}
	return renderChart(c, v)
}

func renderChart(c *chart.Chart, v values) (map[string]string, error) {
	return renderAs(c, v, "blue", "jobs")
}

func renderAs(c *chart.Chart, v values, name, namespace string) (map[string]string, error) {
	capabilities := chartutil.DefaultCapabilities.Copy()
	release := chartutil.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, v, release, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

type object struct {
	file  string
	text  string
	typed runtime.Object
}

// objects decodes all documents strictly.
func objects(t *testing.T, v values) []object {
	t.Helper()
	files, err := render(v)
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, files)
}

func decoded(t *testing.T, files map[string]string) []object {
	t.Helper()
	var out []object
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(file, "NOTES.txt") {
			continue
		}
		for text := range strings.SplitSeq("\n"+files[file], "\n---") {
			if strings.TrimSpace(text) == "" {
				continue
			}
			faults, custom := faultsByCRD(t, text)
			for _, fault := range faults {
				t.Errorf("%s: %s\n%s", file, fault, text)
			}
			if custom != nil && !strict.knows(custom) {
				out = append(out, object{file: file, text: strings.TrimSpace(text), typed: custom})
				continue
			}
			typed, _, err := strict.Decode([]byte(text), nil, nil)
			if err != nil {
				t.Errorf("%s: %v\n%s", file, err, text)
				continue
			}
			out = append(out, object{file: file, text: strings.TrimSpace(text), typed: typed})
		}
	}
	return out
}

// find returns the one object of a type with a name.
func find[T interface {
	runtime.Object
	GetName() string
}](t *testing.T, all []object, name string) T {
	t.Helper()
	var found []T
	for _, o := range all {
		if typed, ok := o.typed.(T); ok && typed.GetName() == name {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects %T with the name %s, want 1", len(found), *new(T), name)
	}
	return found[0]
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if _, err := load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var err error
	if scratch, err = os.MkdirTemp("", "chart"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}
