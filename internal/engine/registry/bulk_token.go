package registry

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// confirmationLife is how long the tokens of a dry run are valid.
const confirmationLife = 15 * time.Minute

// Kinds of signed tokens, by the fields of the request that they are for.
const (
	countToken        = "page_token"
	confirmationToken = "confirmation"
)

// matchCount is what the tokens of a dry run have: how many matches were counted.
type matchCount struct {
	Binding  string         `json:"b"`
	StartMS  unixtime.Milli `json:"s"`
	Matched  int64          `json:"n"`
	ExpireMS unixtime.Milli `json:"x"`
	Place    string         `json:"l,omitempty"` // where the listing continues
}

// countMatches counts one page of a dry run.
func (r *Registry) countMatches(ctx context.Context, q job.BulkRequest) (job.BulkPage, error) {
	now, err := r.shardNow(ctx, job.Key{Namespace: q.Filter.Namespace, ID: "bulk"})
	if err != nil {
		return job.BulkPage{}, err
	}
	count := matchCount{Binding: bindingOf(q), StartMS: now}
	if q.Token != "" {
		count, err = r.openToken(countToken, q.Token, count.Binding)
		if err == nil && count.ExpireMS <= now {
			err = job.Invalid("page_token", "has expired: begin the dry run anew")
		}
		if err != nil {
			return job.BulkPage{}, err
		}
	}
	q.Filter.NowMS = count.StartMS
	targets, next, err := r.findTargets(ctx, q, count.Place)
	if err != nil {
		return job.BulkPage{}, err
	}
	count.Matched += int64(len(targets))
	count.ExpireMS, count.Place = now.Add(confirmationLife), next
	page := job.BulkPage{
		BulkCounts: job.BulkCounts{Matched: int64(len(targets))}, Total: job.BulkCounts{Matched: count.Matched},
		Names: targets[:min(len(targets), job.MaxBulkNames)],
	}
	if next != "" {
		page.Next = r.signToken(countToken, count)
	} else {
		page.Confirmation, page.ExpireMS = r.signToken(confirmationToken, count), count.ExpireMS
	}
	return page, nil
}

// signToken makes a token that only nodes of this keyspace can make.
func (r *Registry) signToken(kind string, count matchCount) string {
	text, err := json.Marshal(count)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text) + "." + base64.RawURLEncoding.EncodeToString(r.tokenMAC(kind, text))
}

func (r *Registry) tokenMAC(kind string, text []byte) []byte {
	mac := hmac.New(sha256.New, r.o.TokenKey)
	mac.Write([]byte(kind + "\n"))
	mac.Write(text)
	return mac.Sum(nil)
}

// openToken reads a token, and refuses one that no node has made, or that was made for another request or caller.
func (r *Registry) openToken(kind, token, binding string) (count matchCount, err error) {
	encoded, signature, _ := strings.Cut(token, ".")
	text, err1 := base64.RawURLEncoding.DecodeString(encoded)
	mac, err2 := base64.RawURLEncoding.DecodeString(signature)
	if err1 != nil || err2 != nil || !hmac.Equal(mac, r.tokenMAC(kind, text)) || json.Unmarshal(text, &count) != nil {
		return matchCount{}, job.Invalid(kind, "is not one that a dry run returned")
	}
	if count.Binding != binding {
		return matchCount{}, job.Invalid(kind,
			"belongs to a request of another caller, or with another parent, filter or options")
	}
	return count, nil
}
