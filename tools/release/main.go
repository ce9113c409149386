// Command release packs what scripts/build.sh has built, for people and
// machines that do not build Fermata themselves:
//
//	release licences   THIRD_PARTY_LICENSES.md: what is linked, under which licence
//	release sbom       one bill of materials for each platform
//	release archives   one archive for each platform, the Helm chart, how they were built, and checksums of all
//	release image      the container image for the Linux platforms
//	release sign       signatures of checksums and provenance, by a private key
//	release verify     whether all of a release is signed by who has a key
//
// It reads binaries from DIST/bin/OS_ARCH and writes below DIST. The same
// binaries, version and time give the same bytes everywhere. It is a module of
// its own so that its libraries never become Fermata's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

// settings are the command line.
type settings struct {
	root, dist        string
	version, revision string
	at                time.Time
	platforms         []string
	image, builder    string
	key               string
	push, check       bool
}

// defaultBuilder is the builder if none is given: a maintainer on their own machine.
const defaultBuilder = "https://github.com/fermata-io/fermata/blob/main/docs/release.md#who-builds"

var tasks = map[string]func(context.Context, settings) error{
	"licences": licences, "sbom": sboms, "archives": archives, "image": image, "sign": sign, "verify": verify,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || tasks[args[0]] == nil {
		return errors.New("say one of: licences, sbom, archives, image, sign, verify")
	}
	s, err := parse(args[0], args[1:])
	if err != nil {
		return err
	}
	return tasks[args[0]](ctx, s)
}

func parse(task string, args []string) (settings, error) {
	var s settings
	var platforms, epoch string
	flags := flag.NewFlagSet(task, flag.ContinueOnError)
	flags.StringVar(&s.root, "root", "../..", "directory of Fermata's go.mod")
	flags.StringVar(&s.dist, "dist", "../../dist", "directory of what was built, and for what is packed")
	flags.StringVar(&s.version, "version", "", "version of the release")
	flags.StringVar(&s.revision, "revision", "", "commit of the release")
	flags.StringVar(&epoch, "epoch", "0", "age of all files, in seconds since 1970 (SOURCE_DATE_EPOCH)")
	flags.StringVar(&platforms, "platforms", "linux/amd64", "os/arch of what was built, separated by spaces")
	flags.StringVar(&s.image, "image", "fermata", "name of the image, without a tag")
	flags.StringVar(&s.builder, "builder", defaultBuilder, "URI of who builds, for the provenance")
	flags.StringVar(&s.key, "key", "", "PEM file of the key that signs: private for sign, public for verify")
	flags.BoolVar(&s.push, "push", false, "push the image to the registry of its name")
	flags.BoolVar(&s.check, "check", false, "write nothing, fail if the licences are not current")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected %q", flags.Args())
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return s, fmt.Errorf("-epoch %q is not a number of seconds", epoch)
	}
	s.at, s.platforms = time.Unix(seconds, 0), strings.Fields(platforms)
	if task != "licences" && s.version == "" {
		return s, errors.New("-version is missing")
	}
	return s, nil
}
