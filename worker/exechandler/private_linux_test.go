//go:build amd64 || arm64

package exechandler

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadablePrivateFilesAreLogged(t *testing.T) {
	dir := filepath.Join(openDir(t), "secrets")
	someone := User{UID: 61_016, GID: 61_016}
	own := User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	for name, test := range map[string]struct {
		dir, file os.FileMode
		as        User
		want      bool
	}{
		"for anybody":                   {0o755, 0o644, someone, true},
		"for its owner":                 {0o755, 0o600, someone, false},
		"for its group":                 {0o755, 0o640, someone, false},
		"for its group, of which it is": {0o755, 0o640, User{UID: 61_016, GID: own.GID}, true},
		"in a closed directory":         {0o700, 0o644, someone, false},
		"the worker's own user":         {0o700, 0o600, own, true},
	} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, mode := range map[string]os.FileMode{"key": test.file, "key.allow": 0o644} {
			path := filepath.Join(dir, file)
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, test.dir); err != nil {
			t.Fatal(err)
		}
		for _, private := range []string{dir, dir + "/key"} {
			var log bytes.Buffer
			Options{User: &test.as, Private: []string{private, "/nonexistent"}, Logger: slog.New(slog.NewTextHandler(&log, nil))}.warnOfReadable()
			if got := strings.Contains(log.String(), "files=1 first="+dir+"/key\n"); got != test.want || !test.want && log.Len() > 0 {
				t.Errorf("%s: %s: the log says %q", name, private, &log)
			}
		}
	}
}
