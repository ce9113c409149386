// Package oci makes the container image of Fermata without a container engine
// and without a base image.
//
// It is one image of all three commands in /usr/bin, for several platforms.
// There is no entrypoint; the command is what follows the image's name, and
// without one it is a scheduler node. All files belong to root and nothing is
// written at run time, so that the root file system can be read-only.
//
// The same inputs give the same digest.
package oci

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fermata-io/fermata/tools/release/tree"
)

const (
	home  = "https://github.com/fermata-io/fermata"
	title = "Fermata"
	about = "Distributed job scheduler: scheduler node, worker and command line in one image"
)

// Build is what an image is of.
type Build struct {
	Version  string
	Revision string // commit; may be empty
	At       time.Time
}

// Contents are the files of one platform's image beside the ones that all have.
type Contents struct {
	Platform string            // linux/amd64
	Commands map[string][]byte // by name
	Docs     map[string][]byte // by name, for /usr/share/doc/fermata
}

// Index makes the image for all platforms.
func Index(build Build, all []Contents) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	base, err := layer(rootFiles(), build.At)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		platform, err := v1.ParsePlatform(c.Platform)
		if err != nil {
			return nil, fmt.Errorf("oci: %w", err)
		}
		image, err := Image(build, base, c, *platform)
		if err != nil {
			return nil, fmt.Errorf("oci: %s: %w", c.Platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return mutate.Annotations(index, labels(build)).(v1.ImageIndex), nil
}

// Image makes the image for one platform.
func Image(build Build, base v1.Layer, c Contents, platform v1.Platform) (v1.Image, error) {
	files, err := layer(c.files(), build.At)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: build.At.UTC()}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant, Created: created,
		Config: v1.Config{
			User:       strconv.Itoa(User) + ":" + strconv.Itoa(User),
			Cmd:        []string{"scheduler"},
			Env:        []string{"PATH=/usr/bin", "HOME=/home/nonroot"},
			WorkingDir: "/home/nonroot",
			Labels:     labels(build),
		},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: base, History: v1.History{Created: created, CreatedBy: "make image", Comment: "system files"}},
		mutate.Addendum{Layer: files, History: v1.History{Created: created, CreatedBy: "make image", Comment: "commands"}})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, labels(build)).(v1.Image), nil
}

// Images returns the images of an index by platform.
func Images(index v1.ImageIndex) (map[string]v1.Image, error) {
	manifests, err := partial.Manifests(index)
	if err != nil {
		return nil, fmt.Errorf("oci: %w", err)
	}
	images := map[string]v1.Image{}
	for _, m := range manifests {
		image, ok := m.(v1.Image)
		if !ok {
			return nil, fmt.Errorf("oci: the index holds a %T", m)
		}
		config, err := image.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("oci: %w", err)
		}
		images[config.Platform().String()] = image
	}
	return images, nil
}

func (c Contents) files() []tree.Entry {
	var entries []tree.Entry
	for _, name := range slices.Sorted(maps.Keys(c.Commands)) {
		entries = append(entries, tree.Entry{Path: "usr/bin/" + name, Mode: 0o755, Data: c.Commands[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Docs)) {
		entries = append(entries, tree.Entry{Path: "usr/share/doc/fermata/" + name, Mode: 0o644, Data: c.Docs[name]})
	}
	return entries
}

func layer(entries []tree.Entry, at time.Time) (v1.Layer, error) {
	var tar bytes.Buffer
	if err := tree.Write(&tar, entries, at); err != nil {
		return nil, err
	}
	content := tar.Bytes()
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

func labels(build Build) map[string]string {
	l := map[string]string{
		"org.opencontainers.image.title":         title,
		"org.opencontainers.image.description":   about,
		"org.opencontainers.image.version":       build.Version,
		"org.opencontainers.image.created":       build.At.UTC().Format(time.RFC3339),
		"org.opencontainers.image.source":        home,
		"org.opencontainers.image.url":           home,
		"org.opencontainers.image.documentation": home + "/tree/main/docs",
		"org.opencontainers.image.licenses":      "Apache-2.0",
	}
	if build.Revision != "" {
		l["org.opencontainers.image.revision"] = build.Revision
	}
	return l
}
