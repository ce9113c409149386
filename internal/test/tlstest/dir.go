package tlstest

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
)

// Dir is a directory with a certificate, its key and an authority, which are replaced
// together: their names are links into a folder that a single link names, as in a
// Secret that Kubernetes mounts.
type Dir struct {
	t    testing.TB
	path string
	// Cert, Key and CA are paths.
	Cert, Key, CA string
}

// NewDir makes a directory that holds a pair and the certificates of authorities.
func NewDir(t testing.TB, p Pair, authorities ...*Authority) *Dir {
	t.Helper()
	d := &Dir{t: t, path: t.TempDir()}
	for name, path := range map[string]*string{"tls.crt": &d.Cert, "tls.key": &d.Key, "ca.crt": &d.CA} {
		*path = filepath.Join(d.path, name)
		if err := os.Symlink(filepath.Join("..data", name), *path); err != nil {
			t.Fatal(err)
		}
	}
	d.Replace(p, authorities...)
	return d
}

// Replace puts another pair and other authorities in place of what is there, at once.
func (d *Dir) Replace(p Pair, authorities ...*Authority) {
	d.t.Helper()
	var ca []byte
	for _, a := range authorities {
		ca = append(ca, a.PEM...)
	}
	folder := "..data_" + rand.Text()
	if err := os.Mkdir(filepath.Join(d.path, folder), 0o700); err != nil {
		d.t.Fatal(err)
	}
	for name, text := range map[string][]byte{"tls.crt": p.Cert, "tls.key": p.Key, "ca.crt": ca} {
		if err := os.WriteFile(filepath.Join(d.path, folder, name), text, 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
	link := filepath.Join(d.path, folder+".link")
	if err := os.Symlink(folder, link); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(d.path, "..data")); err != nil {
		d.t.Fatal(err)
	}
}
