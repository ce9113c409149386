package licence

import (
	"fmt"
	"slices"
	"strings"
)

const preamble = `# Third-party licences

<!-- Written by 'make licences'. Do not edit. -->

What is linked into the binaries of Fermata besides its own code, on any platform
of a release, and under which licences. The texts follow the table; they and this
file go along with every archive and image.

Source: each module is linked as published. ` + "`go mod download <module>@<version>`" + ` or
` + "`https://proxy.golang.org/<module>/@v/<version>.zip`" + ` gets the source of exactly what is
linked, which for MPL-2.0 is the source form of its section 3.2. What begins with ` + "`npm:`" + ` is
in the web console; its source is in ` + "`console/vendor`" + `.

The container image also holds Mozilla's list of certificate authorities
(` + "`/etc/ssl/certs/ca-certificates.crt`" + `), which is under MPL-2.0 too; its source is
` + "`golang.org/x/crypto/x509roots/fallback`" + `.

| module | version | licence |
| --- | --- | --- |
`

// Document renders the list with all texts. Modules with the same text share it.
func Document(modules []Module) string {
	var b strings.Builder
	b.WriteString(preamble)
	for _, m := range modules {
		name, version := m.Path, m.Version
		if name == Standard {
			name, version = "Go standard library and runtime", "of the build"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, version, m.Expression())
	}
	for _, t := range texts(modules) {
		fmt.Fprintf(&b, "\n## %s\n\n````text\n%s\n````\n", strings.Join(t.of, ", "), strings.Trim(t.body, "\n"))
	}
	return b.String()
}

type text struct {
	body string
	of   []string
}

// texts groups the files by their text, in the order of the modules.
func texts(modules []Module) []text {
	var all []text
	for _, m := range modules {
		for _, f := range m.Files {
			body := strings.ReplaceAll(f.Text, "\r\n", "\n")
			i := slices.IndexFunc(all, func(t text) bool { return t.body == body })
			if i < 0 {
				i = len(all)
				all = append(all, text{body: body})
			}
			all[i].of = append(all[i].of, m.Path+"/"+f.Name)
		}
	}
	return all
}
