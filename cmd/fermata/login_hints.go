package main

import (
	"errors"

	"github.com/fermata-io/fermata/internal/auth/signin"
)

// signInHint returns a hint and the exit code for an issuer that gives no token. The hint is empty if the error
// has it.
func signInHint(err error) (code int, hint string) {
	var answer *signin.AnswerError
	switch {
	case errors.Is(err, signin.ErrUnreachable):
		return exitUnavailable, "is --oidc-issuer right, and does this host reach it? A proxy is named by HTTPS_PROXY"
	case errors.Is(err, signin.ErrCertificate):
		return exitFailed, "name the file with the authority of the issuer's certificate by --oidc-ca"
	case errors.Is(err, signin.ErrDiscovery):
		return exitFailed, "--oidc-issuer has to be, letter by letter, the \"issuer\" in the issuer's " +
			"/.well-known/openid-configuration"
	case errors.Is(err, signin.ErrNoDeviceFlow):
		return exitFailed, "have the device flow (RFC 8628) turned on for this client, or use --token-file"
	case errors.Is(err, signin.ErrClock):
		return exitFailed, "set the clock of this host, and try again"
	case errors.Is(err, signin.ErrToken):
		return exitFailed, "an ID token has to be for --oidc-client-id, an access token for --oidc-audience; " +
			"--oidc-token chooses between them"
	case errors.As(err, &answer):
		return answerHint(answer)
	}
	return exitFailed, ""
}

// answerHint is signInHint for an error code of OAuth 2.0.
func answerHint(e *signin.AnswerError) (code int, hint string) {
	if e.Transient() {
		return exitUnavailable, "the issuer fails: try again later"
	}
	switch e.Code {
	case "invalid_client":
		return exitFailed, "the issuer does not know --oidc-client-id, or the client has a secret: name its file " +
			"by --oidc-client-secret-file"
	case "unauthorized_client", "unsupported_grant_type":
		return exitFailed, "have the device flow (RFC 8628) and refresh tokens turned on for this client at the issuer"
	case "invalid_scope":
		return exitFailed, "leave out of --oidc-scopes what the issuer does not have"
	case "invalid_request", "invalid_target":
		return exitFailed, "the issuer does not take this request: are --oidc-client-id, --oidc-scopes and " +
			"--oidc-audience those that it knows?"
	}
	return exitFailed, "see the log of the issuer"
}

// credentialHints are hints for refused credentials, by the reason that the node names.
var credentialHints = map[string]string{
	"UNKNOWN": "of a session: the jwt part of the nodes' access file has to name the issuer that fermata login " +
		"--status shows; " +
		"of --token-file: ask for a new token",
	"SIGNATURE": "repeat the command in half a minute; if it is refused then as well, sign in again by: fermata " +
		"login, " +
		"and compare jwks and algorithms in the nodes' access file with the issuer's",
	"EXPIRED": "sign in again by: fermata login, or put a new token into --token-file, or a new certificate into " +
		"--tls-cert; " +
		"if it should not have expired, compare the clocks of this host and of the node",
	"NOT_YET_VALID": "compare the clocks of the issuer and of the nodes; leeway in the nodes' access file allows " +
		"for a difference",
	"AUDIENCE": "audience in the nodes' access file has to be --oidc-client-id, or --oidc-audience where that " +
		"is set",
	"CLAIMS": "name-claim in the nodes' access file has to be a claim that the issuer fills; --oidc-scopes " +
		"asks for more claims",
	"CERTIFICATE": "ask for an entry for your certificate under certificates in the nodes' access file",
	"MALFORMED":   "--token-file has to hold one token and nothing else",
}

const hintCredential = "sign in by: fermata login; or name the file with your token by --token-file, or your " +
	"certificate by --tls-cert and --tls-key"

// credentialHint returns a hint for a refused credential.
func credentialHint(err error) string {
	if hint := credentialHints[infoOf(err).GetMetadata()["cause"]]; hint != "" {
		return hint
	}
	return hintCredential
}
