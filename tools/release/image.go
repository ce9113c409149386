package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fermata-io/fermata/tools/release/licence"
	"github.com/fermata-io/fermata/tools/release/oci"
)

var errNoLinux = errors.New("an image needs a platform that runs Linux")

// roots is the module that the image's certificate authorities come from.
const roots = "golang.org/x/crypto/x509roots/fallback"

// image makes the container image for the Linux platforms, and pushes it if the settings ask for that.
func image(ctx context.Context, s settings) error {
	tag, err := name.NewTag(s.image + ":" + s.version)
	if err != nil {
		return err
	}
	index, err := s.index()
	if err != nil {
		return err
	}
	if err := oci.Save(filepath.Join(s.dist, "image"), index, tag); err != nil {
		return err
	}
	if s.push {
		if err := oci.Push(ctx, index, tag); err != nil {
			return err
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%s@%s\n", tag, digest)
	return err
}

// index is the image for the platforms that run Linux.
func (s settings) index() (v1.ImageIndex, error) {
	modules, err := licence.Linked(s.root, s.platforms)
	if err != nil {
		return nil, err
	}
	authorities, err := authorities()
	if err != nil {
		return nil, err
	}
	var all []oci.Contents
	for _, platform := range s.platforms {
		if !strings.HasPrefix(platform, "linux/") {
			continue
		}
		contents, err := s.contents(platform, modules, authorities)
		if err != nil {
			return nil, err
		}
		all = append(all, contents)
	}
	if len(all) == 0 {
		return nil, errNoLinux
	}
	return oci.Index(oci.Build{Version: s.version, Revision: s.revision, At: s.at}, all)
}

// digest is the digest of the image, by which the chart runs it. It is empty where there is no image.
func (s settings) digest() (string, error) {
	index, err := s.index()
	if errors.Is(err, errNoLinux) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	digest, err := index.Digest()
	return digest.String(), err
}

func (s settings) contents(platform string, modules, extra []licence.Module) (oci.Contents, error) {
	docs, err := s.docs()
	if err != nil {
		return oci.Contents{}, err
	}
	if docs["sbom.cdx.json"], err = s.bill(platform, modules, extra); err != nil {
		return oci.Contents{}, err
	}
	c := oci.Contents{Platform: platform, Docs: docs, Commands: map[string][]byte{}}
	binaries, err := s.binaries(platform)
	for _, b := range binaries {
		c.Commands[b.Name] = b.Data
	}
	return c, err
}

// authorities returns the list of certificate authorities for the image's bill of materials. This program links the
// list; its own build information has the version.
func authorities() ([]licence.Module, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, errors.New("built without module support")
	}
	for _, dep := range info.Deps {
		if dep.Path == roots {
			return []licence.Module{{Path: dep.Path, Version: dep.Version, Licences: []string{"MPL-2.0"}}}, nil
		}
	}
	return nil, fmt.Errorf("%s is not linked", roots)
}
