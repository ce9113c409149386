package rpc

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// MinBinding is the least length of a binding key in bytes.
const MinBinding = 32

// seal binds lease ids to the worker that they are given to: what leaves for it
// carries a code that only nodes can make, of the lease, the worker's identity and
// its id. A lease that another worker names, under whatever identity and at whatever
// node, is not one that it was given. The code needs no memory, so that a worker can
// take its leases to another node.
type seal struct {
	// One for each goroutine of a stream.
	reading, writing hash.Hash
}

// Every code has the same length.
const codeBytes = 16

var codeLength = base64.RawURLEncoding.EncodedLen(codeBytes)

// newSeal makes the seal of one worker.
func newSeal(key []byte, subject string, h job.Hello) *seal {
	own := hmac.New(sha256.New, key)
	for _, part := range []string{"fermata lease", subject, h.Namespace, h.WorkerID} {
		// Each part is hashed first, so that none can run into the next.
		sum := sha256.Sum256([]byte(part))
		own.Write(sum[:])
	}
	k := own.Sum(nil)
	return &seal{reading: hmac.New(sha256.New, k), writing: hmac.New(sha256.New, k)}
}

func code(h hash.Hash, id string) string {
	h.Reset()
	h.Write([]byte(id))
	var sum [sha256.Size]byte
	return base64.RawURLEncoding.EncodeToString(h.Sum(sum[:0])[:codeBytes])
}

// close puts the code before an id.
func (s *seal) close(id string) string { return code(s.writing, id) + "." + id }

// open takes the code off an id that this worker was given.
func (s *seal) open(sealed string) (id string, ok bool) {
	if len(sealed) <= codeLength+1 || sealed[codeLength] != '.' {
		return "", false
	}
	id = sealed[codeLength+1:]
	return id, hmac.Equal([]byte(sealed[:codeLength]), []byte(code(s.reading, id)))
}

// closeAll seals what a message names that does not do so itself.
func (s *seal) closeAll(m *fermatav1.WorkResponse) {
	c := m.GetCancel()
	if c == nil {
		return
	}
	// The ids may be shared with whoever sent the message.
	ids := make([]string, len(c.GetLeaseIds()))
	for i, id := range c.GetLeaseIds() {
		ids[i] = s.close(id)
	}
	c.LeaseIds = ids
}

// sort tells the ids that this worker was given, open, from those that it was not.
func (s *seal) sort(sealed []string) (own, foreign []string) {
	own = make([]string, 0, len(sealed))
	for _, id := range sealed {
		if plain, ok := s.open(id); ok {
			own = append(own, plain)
		} else {
			foreign = append(foreign, id)
		}
	}
	return own, foreign
}

// sealed is a message that goes out as it is: it names leases by the words of the
// worker.
type sealed struct {
	job.WorkerMessage
	pb *fermatav1.WorkResponse
}

// notYours answers a worker that names leases as its own at the start of a stream.
func notYours(ids []string) sealed {
	return sealed{pb: &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Cancel{
		Cancel: &fermatav1.Cancel{LeaseIds: ids, Reason: fermatav1.Cancel_REASON_LEASE_LOST},
	}}}
}

// notTaken answers results of leases that the worker was not given. The answer is
// final, so that a worker whose identity has changed does not repeat them for ever.
func notTaken(ids []string) sealed {
	m := &fermatav1.ResultAcks{}
	for _, id := range ids {
		m.Acks = append(m.Acks, &fermatav1.ResultAck{LeaseId: id, Status: fermatav1.ResultAck_STATUS_STALE})
	}
	return sealed{pb: &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_ResultAcks{ResultAcks: m}}}
}
