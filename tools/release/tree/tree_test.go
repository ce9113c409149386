package tree

import (
	"archive/tar"
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOrderAndZoneDoNotShow(t *testing.T) {
	at := time.Unix(1_700_000_000, 123)
	entries := []Entry{
		{Path: "etc/", Mode: 0o755}, {Path: "etc/passwd", Mode: 0o644, Data: []byte("root")}, {Path: "tmp/", Mode: 0o1777},
	}
	var one, other bytes.Buffer
	if err := WriteGzip(&one, entries, at); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(entries)
	if err := WriteGzip(&other, entries, at.In(time.FixedZone("far", 9*3600)).Truncate(time.Second)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), other.Bytes()) {
		t.Error("the same files in another order or zone give other bytes")
	}
}

func TestWriteKeepsModesAndOwners(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, []Entry{{Path: "tmp/", Mode: 0o1777}, {Path: "home/x", Mode: 0o640, Owner: 65532, Data: []byte("y")}}, time.Unix(9, 0)); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(&b)
	file, err := r.Next()
	if err != nil || file.Name != "home/x" || file.Uid != 65532 || file.Gid != 65532 || file.Mode != 0o640 || file.ModTime.Unix() != 9 {
		t.Errorf("file %+v, error %v", file, err)
	}
	dir, err := r.Next()
	if err != nil || dir.Typeflag != tar.TypeDir || dir.Mode != 0o1777 {
		t.Errorf("directory %+v, error %v", dir, err)
	}
}

func TestWriteRefusesTwins(t *testing.T) {
	err := Write(&bytes.Buffer{}, []Entry{{Path: "a"}, {Path: "a"}}, time.Unix(0, 0))
	if err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("error %v, want one that says twice", err)
	}
}
