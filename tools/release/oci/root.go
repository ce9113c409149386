package oci

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/fermata-io/fermata/tools/release/tree"
)

// User is the user and the group that the commands run as. Kubernetes'
// restricted profile demands a number other than 0, and distroless images use
// this one.
const User = 65532

const (
	passwd = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
	group  = "root:x:0:\nnonroot:x:65532:\n"
)

// rootFiles is what the commands need of a system: certificate authorities, a
// name for their user, a directory for temporary files. There is no shell, no
// package manager, no libc and no time zone database, which is in the binaries.
func rootFiles() []tree.Entry {
	return []tree.Entry{
		{Path: "etc/", Mode: 0o755},
		{Path: "etc/passwd", Mode: 0o644, Data: []byte(passwd)},
		{Path: "etc/group", Mode: 0o644, Data: []byte(group)},
		{Path: "etc/ssl/", Mode: 0o755},
		{Path: "etc/ssl/certs/", Mode: 0o755},
		{Path: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Data: authorities()},
		{Path: "home/", Mode: 0o755},
		{Path: "home/nonroot/", Mode: 0o700, Owner: User},
		{Path: "tmp/", Mode: 0o1777},
		{Path: "usr/", Mode: 0o755},
		{Path: "usr/bin/", Mode: 0o755},
		{Path: "usr/share/", Mode: 0o755},
		{Path: "usr/share/doc/", Mode: 0o755},
		{Path: "usr/share/doc/fermata/", Mode: 0o755},
	}
}

// authorities are Mozilla's, as published for Go: pinned by go.sum, so that the
// image does not depend on the list of the building machine. Authorities that
// Mozilla trusts for older certificates only are left out, because this format
// cannot express that.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return out.Bytes()
}
