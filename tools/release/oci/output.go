package oci

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Save writes the image below dir, which it makes anew: the OCI layout "oci"
// with all platforms, which registries and skopeo take; one archive for each
// platform, which `docker load` and `ctr images import` take; and the file
// "digest" with the digest by which a registry will know it.
func Save(dir string, index v1.ImageIndex, tag name.Tag) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("oci: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("oci: %w", err)
	}
	path, err := layout.Write(filepath.Join(dir, "oci"), empty.Index)
	if err != nil {
		return fmt.Errorf("oci: %w", err)
	}
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag.TagStr()})
	if err := path.AppendIndex(index, named); err != nil {
		return fmt.Errorf("oci: %w", err)
	}
	images, err := Images(index)
	if err != nil {
		return err
	}
	for platform, image := range images {
		file := filepath.Join(dir, "fermata_"+tag.TagStr()+"_"+strings.ReplaceAll(platform, "/", "_")+".docker.tar")
		if err := tarball.WriteToFile(file, tag, image); err != nil {
			return fmt.Errorf("oci: %w", err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("oci: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "digest"), []byte(digest.String()+"\n"), 0o644)
}

// Push sends the image for all platforms to the tag's registry, with the
// credentials that `docker login` left.
func Push(ctx context.Context, index v1.ImageIndex, tag name.Tag) error {
	err := remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return fmt.Errorf("oci: push %s: %w", tag, err)
	}
	return nil
}
