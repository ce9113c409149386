// Command pgo makes of CPU profiles one for the compiler (go build -pgo): of all files
// *.cpu below a folder, as `go run . -profile` writes them. Each counts alike, however long
// it took. What the compiler does not ask for is left out, paths of the machine that
// measured above all.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/pprof/profile"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./pgo FOLDER FILE: merges the CPU profiles in FOLDER to FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "pgo:", err)
		os.Exit(1)
	}
}

func run(dir, file string) error {
	profiles, err := read(os.DirFS(dir))
	if err != nil {
		return err
	}
	merged, err := merge(profiles)
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(merged.Write(f), f.Close())
}

// read reads all CPU profiles in a folder and below.
func read(dir fs.FS) (profiles []*profile.Profile, err error) {
	err = fs.WalkDir(dir, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".cpu" {
			return err
		}
		f, err := dir.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		p, err := profile.Parse(f)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		profiles = append(profiles, p)
		return nil
	})
	if err == nil && len(profiles) == 0 {
		err = errors.New("there are no profiles *.cpu")
	}
	return profiles, err
}

// each is how many samples one profile counts for.
const each = 1_000_000

// merge makes one profile of several. Those without samples, of processes that had
// nothing to do, are left out.
func merge(profiles []*profile.Profile) (*profile.Profile, error) {
	var all []*profile.Profile
	for _, p := range profiles {
		total := int64(0)
		for _, s := range p.Sample {
			s.Label, s.NumLabel, s.NumUnit = nil, nil, nil
			total += s.Value[0] // the number of samples, by which the compiler goes
		}
		if total == 0 {
			continue
		}
		p.Scale(each / float64(total))
		strip(p)
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, errors.New("no profile has a sample")
	}
	return profile.Merge(all)
}

// strip leaves of the code what the compiler knows it by: functions and lines.
func strip(p *profile.Profile) {
	p.Comments, p.TimeNanos, p.DurationNanos, p.Period = nil, 0, 0, 0
	p.Mapping = nil
	for _, l := range p.Location {
		l.Mapping, l.Address = nil, 0
	}
	for _, f := range p.Function {
		f.Filename, f.SystemName = "", f.Name
	}
}
