//go:build amd64 || arm64

package exechandler

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fermata-io/fermata/worker/exechandler/internal/launch"
)

// cgroupPrefix is the prefix of the control groups of attempts.
const cgroupPrefix = "fermata-exec-"

// containment is how the processes of an attempt are kept together. The zero value uses the supervisor only.
type containment struct {
	parent string // directory of the control group that those of attempts are in; empty: none
}

// cgroupCount counts the control groups that this process has made.
var cgroupCount atomic.Int64

// chooseContainment chooses the containment and logs it.
func (o Options) chooseContainment() (containment, error) {
	if o.Containment == ContainBySubreaper {
		o.logContainment("a subreaper")
		return containment{}, nil
	}
	parent, err := findCgroup()
	if err == nil {
		c := containment{parent}
		err = c.probe()
		if err == nil {
			o.logContainment("a cgroup", slog.String("cgroup", parent))
			return c, nil
		}
	}
	if o.Containment == ContainByCgroup {
		return containment{}, fmt.Errorf("exec handler: no control group can be made for each attempt: %w", err)
	}
	o.logContainment("a subreaper", slog.String("no_cgroup", err.Error()))
	return containment{}, nil
}

func (o Options) logContainment(by string, attributes ...any) {
	o.Logger.Info("exec attempts are contained by "+by, attributes...)
}

// newCgroup makes the control group of an attempt.
func (c containment) newCgroup() (string, error) {
	if c.parent == "" {
		return "", nil
	}
	dir := filepath.Join(c.parent, fmt.Sprintf("%s%d-%d", cgroupPrefix, os.Getpid(), cgroupCount.Add(1)))
	return dir, os.Mkdir(dir, 0o755)
}

// probe starts a process in a new control group and kills it there.
func (c containment) probe() (err error) {
	c.removeStale()
	dir, err := c.newCgroup()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, launch.RemoveCgroup(dir)) }()
	group, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer group.Close()
	path, args := launch.ProbeCommand()
	cmd := &exec.Cmd{Path: path, Args: args, Env: []string{},
		SysProcAttr: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}}
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer input.Close()
	if err := ownChildren.startSupervisor(cmd); err != nil {
		return err
	}
	killErr := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	if killErr != nil {
		input.Close() // the process ends by itself
	}
	err = ownChildren.awaitSupervisor(cmd)
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if killErr != nil || !status.Signaled() {
		return errors.Join(errors.New("cgroup.kill has no effect"), killErr)
	}
	return nil
}

// removeStale removes the empty control groups of workers that were killed together
// with their supervisors.
func (c containment) removeStale() {
	dirs, _ := filepath.Glob(filepath.Join(c.parent, cgroupPrefix+"*"))
	for _, dir := range dirs {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix), "-")
		if pid, err := strconv.Atoi(owner); err == nil && unix.Kill(pid, 0) == unix.ESRCH {
			_ = unix.Rmdir(dir) // one that is in use is not empty
		}
	}
}

// findCgroup returns the directory of this process's control group of version 2.
func findCgroup() (string, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return locateCgroup(groups, mounts)
}

// locateCgroup reads /proc/self/cgroup and /proc/self/mountinfo.
func locateCgroup(groups, mounts []byte) (string, error) {
	var group string
	for lines := bufio.NewScanner(bytes.NewReader(groups)); lines.Scan(); {
		if path, of := strings.CutPrefix(lines.Text(), "0::"); of {
			group = path
		}
	}
	if group == "" || strings.HasPrefix(group, "/..") {
		return "", errors.New("this process is in no control group of version 2 that it can see")
	}
	for lines := bufio.NewScanner(bytes.NewReader(mounts)); lines.Scan(); {
		mount, about, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if !strings.HasPrefix(about, "cgroup2 ") || len(fields) < 5 {
			continue
		}
		below, err := filepath.Rel(fields[3], group)
		if err == nil && filepath.IsLocal(below) {
			return filepath.Join(fields[4], below), nil
		}
	}
	return "", errors.New("this process's control group is not mounted")
}
