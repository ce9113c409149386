package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// documentedValues are the blocks of values in docs/kubernetes.md. The first one that names TLS is that of an
// installation for production.
var documentedValues = regexp.MustCompile("(?ms)^( *)```yaml\n *# values\\.yaml\n(.*?)^ *```$")

// TestDocumentedValues: all values in docs/kubernetes.md render. Those for production are complete by themselves, and
// protect all that the chart can protect.
func TestDocumentedValues(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	const protected = "tls: {nodeSecret: a, workerSecret: b, clientSecret: d, gatewaySecret: e, scalerSecret: c}\n"
	complete := 0
	for _, m := range documentedValues.FindAllStringSubmatch(string(text), -1) {
		block := strings.ReplaceAll("\n"+m[2], "\n"+m[1], "\n")
		v := parse(t, strings.ReplaceAll(block, "sha256:...", "sha256:"+strings.Repeat("1", 64)))
		if _, ok := v["tls"]; ok {
			complete++
			checkProtection(t, v)
		} else {
			for key, value := range parse(t, good+protected) {
				if _, ok := v[key]; !ok {
					v[key] = value
				}
			}
			v["networkPolicy"] = values{"metricsFrom": []any{values{}}, "egress": values{"to": []any{values{}}}}
		}
		if _, err := render(v); err != nil {
			t.Errorf("%s\n%v", block, err)
		}
	}
	if complete != 1 {
		t.Errorf("%d sets of values are complete, want that for production", complete)
	}
}

// checkProtection holds values for production against what a document should show.
func checkProtection(t *testing.T, v values) {
	t.Helper()
	at := func(keys ...string) (found any) {
		found = v
		for _, key := range keys {
			below, _ := found.(values)
			found = below[key]
		}
		return found
	}
	if url, _ := at("redis", "url").(string); !strings.HasPrefix(url, "rediss") {
		t.Errorf("redis.url is %s, which is plain text", url)
	}
	if at("insecure") != nil || at("access", "unrestricted") != nil {
		t.Error("the values for production turn protection off")
	}
	for _, keys := range [][]string{{"gossip", "existingSecret"}, {"access", "existingSecret"}, {"payloadKeys", "existingSecret"}, {"auditKeys", "existingSecret"}, {"redis", "existingSecret"}, {"redis", "sentinel", "existingSecret"}, {"redis", "tls", "existingSecret"}, {"scheduler", "config", "payload-require-sealed"}, {"image", "digest"}} {
		if at(keys...) == nil {
			t.Errorf("the values for production lack %s", strings.Join(keys, "."))
		}
	}
}
