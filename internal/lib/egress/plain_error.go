package egress

import (
	"crypto/x509"
	"errors"
	"net"
)

// errRefused is the error of a guard.
var errRefused = errors.New("not allowed here")

// PlainError is a failure in a text for the author of the URL. Err is the failure itself, which contains
// addresses: it is for the operator of the process.
type PlainError struct {
	Text string
	Err  error
	// Refused: a [Guard] did not allow the address, or the name does not exist.
	Refused bool
}

func (e *PlainError) Error() string { return e.Text }
func (e *PlainError) Unwrap() error { return e.Err }

// DescribeWithoutAddresses describes the failure of a request without the addresses of names, of this process and of
// its resolver, and without parts of the URL. A name that does not exist and one whose address is refused have the same
// text; otherwise internal names could be listed. It returns err itself if err contains none of this.
func DescribeWithoutAddresses(err error) error {
	var lookup *net.DNSError
	var op *net.OpError
	var host x509.HostnameError
	var family *net.AddrError
	text, refused := "", false
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errRefused) || errors.As(err, &lookup) && lookup.IsNotFound, errors.As(err, &family):
		refused = true
		text = "not allowed here, or no such name: only public addresses at some ports, and networks that were " +
			"allowed, are reached"
	case lookup != nil && lookup.IsTimeout:
		text = "the lookup of the name timed out"
	case lookup != nil:
		text = "the lookup of the name failed"
	case errors.As(err, &op):
		text = networkErrorText(op)
	case errors.As(err, &host):
		text = "the certificate is not valid for the host of the URL"
	default:
		return err
	}
	return &PlainError{Text: text, Err: err, Refused: refused}
}

// networkErrorText is the text of an error of the network without its addresses.
func networkErrorText(op *net.OpError) string {
	text := op.Op
	for err := op.Err; ; err = op.Err {
		if inner := (*net.OpError)(nil); errors.As(err, &inner) {
			op, text = inner, text+": "+inner.Op
			continue
		}
		if err != nil {
			text += ": " + err.Error()
		}
		return text
	}
}
