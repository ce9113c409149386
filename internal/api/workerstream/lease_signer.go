package workerstream

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// MinKeyBytes is the least length of a binding key in bytes.
const MinKeyBytes = 32

// leaseSigner binds lease ids to the worker that received them. Every lease id that leaves a node carries a signature
// over the lease id, the worker's identity and the worker's id. Only nodes have the key, so a lease id that another
// worker copies does not verify, at any node and under any identity. The signature needs no stored state: a worker
// can take its leases to another node.
type leaseSigner struct {
	// One for each goroutine of a stream.
	verifying, signing hash.Hash
}

// Every signature has the same length.
const signatureBytes = 16

var signatureLength = base64.RawURLEncoding.EncodedLen(signatureBytes)

// newLeaseSigner returns the signer of one worker's lease ids.
func newLeaseSigner(key []byte, subject string, h job.Hello) *leaseSigner {
	own := hmac.New(sha256.New, key)
	for _, part := range []string{"fermata lease", subject, h.Namespace, h.WorkerID} {
		// Each part is hashed first, so that none can run into the next.
		sum := sha256.Sum256([]byte(part))
		own.Write(sum[:])
	}
	k := own.Sum(nil)
	return &leaseSigner{verifying: hmac.New(sha256.New, k), signing: hmac.New(sha256.New, k)}
}

func signatureOf(h hash.Hash, id string) string {
	h.Reset()
	h.Write([]byte(id))
	var sum [sha256.Size]byte
	return base64.RawURLEncoding.EncodeToString(h.Sum(sum[:0])[:signatureBytes])
}

// Sign puts the signature before a lease id.
func (s *leaseSigner) Sign(id string) string { return signatureOf(s.signing, id) + "." + id }

// Verify takes the code off an id that this worker was given.
func (s *leaseSigner) Verify(sealed string) (id string, ok bool) {
	if len(sealed) <= signatureLength+1 || sealed[signatureLength] != '.' {
		return "", false
	}
	id = sealed[signatureLength+1:]
	return id, hmac.Equal([]byte(sealed[:signatureLength]), []byte(signatureOf(s.verifying, id)))
}

// signMessage signs the lease ids of a cancellation or of acknowledgements.
func (s *leaseSigner) signMessage(m *fermatav1.WorkResponse) {
	for _, a := range m.GetResultAcks().GetAcks() {
		a.LeaseId = s.Sign(a.GetLeaseId())
	}
	if c := m.GetCancel(); c != nil {
		// The caller may share the list of ids.
		ids := make([]string, len(c.GetLeaseIds()))
		for i, id := range c.GetLeaseIds() {
			ids[i] = s.Sign(id)
		}
		c.LeaseIds = ids
	}
}

// splitBySignature separates lease ids that this worker was given, without their signatures, from the others.
func (s *leaseSigner) splitBySignature(sealed []string) (own, foreign []string) {
	own = make([]string, 0, len(sealed))
	for _, id := range sealed {
		if plain, ok := s.Verify(id); ok {
			own = append(own, plain)
		} else {
			foreign = append(foreign, id)
		}
	}
	return own, foreign
}

// foreignLeases answers a worker that names leases which it was not given. It identifies them as the worker did.
type foreignLeases struct {
	job.WorkerMessage
	ids []string
	// live: the worker has named them as its own at the start of the stream, and hears that they are lost. Otherwise it
	// has sent their results, which are answered as stale. That is final, so that a worker whose identity has changed
	// does not repeat them for ever.
	live bool
}

func (m foreignLeases) toPB() *fermatav1.WorkResponse {
	if m.live {
		return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Cancel{
			Cancel: &fermatav1.Cancel{LeaseIds: m.ids, Reason: fermatav1.Cancel_REASON_LEASE_LOST},
		}}
	}
	acks := &fermatav1.ResultAcks{Acks: make([]*fermatav1.ResultAck, len(m.ids))}
	for i, id := range m.ids {
		acks.Acks[i] = &fermatav1.ResultAck{LeaseId: id, Status: fermatav1.ResultAck_STATUS_STALE}
	}
	return &fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_ResultAcks{ResultAcks: acks}}
}
