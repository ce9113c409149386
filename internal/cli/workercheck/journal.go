package workercheck

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// journalPoll is how often the journal is read.
const journalPoll = 2 * time.Millisecond

// journalReader follows the file that check handlers write.
type journalReader struct {
	mu   sync.Mutex // held while lines are read and taken, so that they are taken in their order
	file *os.File
	rest []byte // of an unfinished line
	stop chan struct{}
	done chan struct{}
}

func (t *trial) openJournal(path string) (*journalReader, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, err
	}
	t.settings["FERMATA_CHECK_JOURNAL"] = path
	j := &journalReader{file: file, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(j.done)
		ticker := time.NewTicker(journalPoll)
		defer ticker.Stop()
		for {
			select {
			case <-j.stop:
				return
			case <-ticker.C:
				t.readJournal(j)
			}
		}
	}()
	t.onEnd(func() {
		close(j.stop)
		<-j.done
		file.Close()
	})
	return j, nil
}

// readJournal takes the new lines of the journal.
func (t *trial) readJournal(j *journalReader) {
	j.mu.Lock()
	defer j.mu.Unlock()
	data, err := io.ReadAll(j.file)
	if err != nil && !errors.Is(err, io.EOF) || len(data) == 0 {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	data = append(j.rest, data...)
	for {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			break
		}
		data = rest
		t.readJournalLine(string(line), now)
	}
	j.rest = bytes.Clone(data)
	t.noteChange()
}

func (t *trial) readJournalLine(line string, now time.Time) {
	word, number, _ := strings.Cut(line, " ")
	token, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	switch {
	case err == nil && word == "start":
		t.observeStart(token, now)
	case err == nil && word == "end":
		t.observeEnd(token, now)
	default:
		t.addFault(ruleJournal, "the journal has the line %q", line)
	}
}
