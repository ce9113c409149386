package privatefile

import (
	"context"
	"errors"
	"os"
	"time"
)

// lockPause is the pause between two attempts to lock a file.
const lockPause = 20 * time.Millisecond

// Lock locks a file, which it creates if need be, until unlock is called or the process ends. It waits for other
// processes until ctx ends, and returns the error of ctx then.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	for {
		isLocked, err := TryLock(file)
		if isLocked {
			return func() { _ = file.Close() }, nil
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, ctx.Err()
		case <-time.After(lockPause):
		}
	}
}
