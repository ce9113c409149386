package gateway

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// SessionOptions configure the sessions of the console: a person signs in once, and the browser keeps the token in a
// cookie that scripts cannot read.
type SessionOptions struct {
	// Key seals the cookies, 32 bytes. Gateways with the same key accept each other's. Nil: a random one, so that
	// sessions end with the process.
	Key []byte
	// URL is that of the console as browsers see it. Required with SignIn. With https, cookies are sent by TLS only.
	URL string
	// SignIn signs people in at an issuer; nil: they paste a token.
	SignIn SignIn
}

// SignIn signs people in at an issuer to which their browser is redirected.
type SignIn interface {
	// Name is shown to people.
	Name() string
	// Begin returns the address to which the browser goes, the state that it brings back, and what Finish needs.
	Begin(ctx context.Context, redirectURL string) (address, state string, flow []byte, err error)
	// Finish exchanges what the browser brought back for tokens. The subject is who has signed in.
	Finish(ctx context.Context, flow []byte, query url.Values, redirectURL string) (token, refresh, subject string,
		err error)
	// FailedByIssuer reports whether Finish failed although the code may be right: the issuer did not judge it, or
	// accepted it and gave a token that cannot be used.
	FailedByIssuer(err error) bool
	// Refresh exchanges a refresh token for new tokens, and returns whose they are.
	Refresh(ctx context.Context, refresh string) (token, newRefresh, subject string, err error)
}

const (
	sessionCookie = "fermata-session"
	// signInCookie begins the names of the cookies of sign-ins at an issuer that have not ended; see signInName.
	signInCookie = "fermata-sign-in-"
	sessionPath  = "/console/session"
	// returnPlace is the place of the console to which a browser comes back from the issuer. The page goes on to where the
	// sign-in began, which it has kept: nothing in a request decides where a browser is sent.
	returnPlace = "/#/return"
	// maxCookie is what browsers keep of a cookie, with its name.
	maxCookie = 4000
	// signInTime bounds a sign-in at an issuer.
	signInTime = 10 * time.Minute
	// maxBrowserSignIns bounds the sign-ins of one browser that have not ended, so that their cookies, of some 350 bytes
	// each, fit in the headers of a request beside the session.
	maxBrowserSignIns = 8
	// issuerTimeout bounds the calls of one request to the issuer.
	issuerTimeout = 20 * time.Second
	// refreshKept is how long the result of a refresh is kept for other tabs that send the same, used refresh token.
	refreshKept = time.Minute
	// maxRefreshes bounds the results that are kept, each of some kilobytes.
	maxRefreshes = 2000
	// maxSignIns bounds the requests that begin, refresh or end a session at once; a quarter may be of one remote
	// address. Most come before anybody has signed in.
	maxSignIns = 64
	// tokenTime bounds the arrival of a token that was pasted.
	tokenTime = 5 * time.Second
	// maxTokenReaders bounds the requests whose token is arriving; a quarter may be of one remote address.
	maxTokenReaders = 64
)

// session is what a cookie has.
type session struct {
	Token   string `json:"t"`
	Refresh string `json:"r,omitempty"`
	// Subject is who has signed in at the issuer: refreshed tokens have to be of the same.
	Subject string `json:"s,omitempty"`
}

// sessions seal tokens into cookies. They keep no state but the last refreshes.
type sessions struct {
	seal     cipher.AEAD
	signIn   SignIn
	url      string // without a slash at its end
	base     string
	isSecure bool
	places   *places
	readers  *places // of tokens that arrive
	failed   *failedExchanges

	mu        sync.Mutex
	refreshes map[[sha256.Size]byte]*refreshCall
}

// refreshCall is one exchange of a refresh token.
type refreshCall struct {
	done    chan struct{}
	session session
	err     error
	at      time.Time
}

func newSessions(o *SessionOptions, base string) (*sessions, error) {
	if o == nil {
		return nil, nil
	}
	key := o.Key
	if key == nil {
		key = make([]byte, 32)
		_, _ = rand.Read(key) // never fails
	}
	block, err := aes.NewCipher(key)
	if err != nil || len(key) != 32 {
		return nil, errors.New("the key of console sessions must have 32 bytes")
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	if o.SignIn != nil && o.URL == "" {
		return nil, errors.New("a sign-in at an issuer needs the URL of the console")
	}
	return &sessions{
		seal: seal, signIn: o.SignIn, url: strings.TrimSuffix(o.URL, "/"), base: base,
		isSecure: strings.HasPrefix(o.URL, "https:"), places: newPlaces(maxSignIns),
		readers:   newPlaces(maxTokenReaders),
		failed:    newFailedExchanges(),
		refreshes: map[[sha256.Size]byte]*refreshCall{},
	}, nil
}

// sealText encrypts a value for a cookie of this name.
func (s *sessions) sealText(name string, value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, s.seal.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	sealed := base64.RawURLEncoding.EncodeToString(s.seal.Seal(nonce, nonce, text, []byte(name)))
	if len(s.cookieName(name))+len(sealed) > maxCookie {
		return "", errors.New("the tokens are too large for a cookie; ask the issuer for fewer claims")
	}
	return sealed, nil
}

// openText decrypts a cookie; false if it has none, or one of another key.
func (s *sessions) openText(r *http.Request, name string, value any) bool {
	cookie, err := r.Cookie(s.cookieName(name))
	if err != nil {
		return false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || len(sealed) < s.seal.NonceSize() {
		return false
	}
	size := s.seal.NonceSize()
	text, err := s.seal.Open(nil, sealed[:size], sealed[size:], []byte(name))
	return err == nil && json.Unmarshal(text, value) == nil
}

// token is the token of a request's session; "" if it has none.
func (s *sessions) token(r *http.Request) string {
	var c session
	if s == nil || !s.openText(r, sessionCookie, &c) {
		return ""
	}
	return c.Token
}

// cookieName is the name of a cookie in the browser. With TLS it has a prefix, by which browsers let no other host and
// no page without TLS set it: neither can sign people in as somebody else. Below a base path only the latter holds.
func (s *sessions) cookieName(name string) string {
	switch {
	case s.isSecure && s.base == "":
		return "__Host-" + name
	case s.isSecure:
		return "__Secure-" + name // the other prefix needs the path /
	}
	return name
}

// setCookie sets a cookie that no script reads. Lax: it comes along when the issuer sends the browser back.
func (s *sessions) setCookie(w http.ResponseWriter, name, value string, sameSite http.SameSite, maxAge int) {
	http.SetCookie(w, &http.Cookie{
		Name: s.cookieName(name), Value: value, Path: s.base + "/", HttpOnly: true, Secure: s.isSecure,
		SameSite: sameSite, MaxAge: maxAge,
	})
}

func (s *sessions) begin(w http.ResponseWriter, c session) error {
	sealed, err := s.sealText(sessionCookie, c)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	s.setCookie(w, sessionCookie, sealed, http.SameSiteStrictMode, 0)
	return nil
}

// serves reports whether a path is one of the sessions.
func (s *sessions) serves(path string) bool { return s != nil && strings.HasPrefix(path, "/console/") }

// serveSession begins, refreshes or ends a session, or signs in.
func (g *Gateway) serveSession(w http.ResponseWriter, r *http.Request) {
	s := g.sessions
	token, err := g.readToken(w, r)
	if err != nil {
		writeError(w, r, err)
		return
	}
	release, ok := s.places.take(r.Context(), g.proxies.remoteHost(r))
	if !ok {
		g.metrics.refuse("sign_in")
		writeError(w, r, exhausted("too many sign-ins at once"))
		return
	}
	defer release()
	switch r.Method + " " + r.URL.Path {
	case "POST " + sessionPath:
		err = g.beginSession(w, r, token)
	case "DELETE " + sessionPath:
		s.setCookie(w, sessionCookie, "", http.SameSiteStrictMode, -1)
	case "POST " + sessionPath + "/refresh":
		err = g.refreshSession(w, r)
	case "GET /console/sign-in":
		g.redirectToIssuer(w, r)
		return
	case "GET /console/callback":
		g.finishSignIn(w, r)
		return
	default:
		handleRoutingError(r.Context(), nil, nil, w, r, http.StatusNotFound)
		return
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// readToken reads the token that was pasted; "" if it is another request. Requests whose token arrives slowly take none
// of the places of sign-ins.
func (g *Gateway) readToken(w http.ResponseWriter, r *http.Request) (string, error) {
	if r.Method != http.MethodPost || r.URL.Path != sessionPath {
		return "", nil
	}
	release, ok := g.sessions.readers.take(r.Context(), g.proxies.remoteHost(r))
	if !ok {
		g.metrics.refuse("sign_in")
		return "", exhausted("too many sign-ins at once")
	}
	defer release()
	var q struct {
		Token string `json:"token"`
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(tokenTime))
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCookie))
	if err == nil {
		err = json.Unmarshal(text, &q)
	}
	q.Token = strings.TrimSpace(q.Token)
	if err != nil || q.Token == "" || !isHeaderText(q.Token) || strings.Contains(q.Token, " ") {
		return "", status.Error(codes.InvalidArgument, "the text is not a token")
	}
	return q.Token, nil
}

// beginSession begins a session with a token that nodes accept.
func (g *Gateway) beginSession(w http.ResponseWriter, r *http.Request, token string) error {
	if err := g.checkToken(r, token); err != nil {
		return err
	}
	return g.sessions.begin(w, session{Token: token})
}

// checkToken asks the nodes whether they accept a token.
func (g *Gateway) checkToken(r *http.Request, token string) error {
	cred, err := g.credentials.acquire(r.Context(), token, g.proxies.remoteHost(r))
	if err != nil {
		return err
	}
	g.credentials.release(cred)
	return nil
}

// callbackURL is where the issuer sends the browser back to.
func (s *sessions) callbackURL() string { return s.url + "/console/callback" }

func (g *Gateway) redirectToIssuer(w http.ResponseWriter, r *http.Request) {
	s := g.sessions
	if s.signIn == nil {
		handleRoutingError(r.Context(), nil, nil, w, r, http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), issuerTimeout)
	defer cancel()
	address, state, flow, err := s.signIn.Begin(ctx, s.callbackURL())
	if err != nil {
		s.showSignInError(w, g.hideIssuerError("sign-in failed", err))
		return
	}
	name := signInName(state)
	sealed, err := s.sealText(name, flow)
	if err != nil {
		s.showSignInError(w, err)
		return
	}
	s.dropAbandonedSignIns(w, r)
	s.setCookie(w, name, sealed, http.SameSiteLaxMode, int(signInTime.Seconds()))
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// signInName is the name of the cookie of one sign-in, by the state that the issuer sends back. Each has its own, so
// that tabs in which a person signs in at the same time do not end each other's sign-in.
func signInName(state string) string {
	sum := sha256.Sum256([]byte(state))
	return signInCookie + hex.EncodeToString(sum[:8])
}

// dropAbandonedSignIns makes room for the cookie of one more sign-in.
func (s *sessions) dropAbandonedSignIns(w http.ResponseWriter, r *http.Request) {
	var names []string
	for _, cookie := range r.Cookies() { // browsers send the oldest first
		rest, ok := strings.CutPrefix(cookie.Name, s.cookieName(signInCookie))
		if ok {
			names = append(names, signInCookie+rest)
		}
	}
	for i := range len(names) - maxBrowserSignIns + 1 {
		s.setCookie(w, names[i], "", http.SameSiteLaxMode, -1)
	}
}

// finishSignIn begins a session with the tokens of the issuer.
func (g *Gateway) finishSignIn(w http.ResponseWriter, r *http.Request) {
	s := g.sessions
	name := signInName(r.URL.Query().Get("state"))
	var flow []byte
	if s.signIn == nil || !s.openText(r, name, &flow) {
		s.showSignInError(w, errors.New("it has taken too long, has ended before, or began in another browser"))
		return
	}
	s.setCookie(w, name, "", http.SameSiteLaxMode, -1)
	address := g.proxies.remoteHost(r)
	if !s.failed.reserve(address, time.Now()) {
		g.metrics.refuse("sign_in")
		s.showSignInError(w, errors.New("too many from this address failed or are under way; wait a minute"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), issuerTimeout)
	defer cancel()
	var c session
	var err error
	c.Token, c.Refresh, c.Subject, err = s.signIn.Finish(ctx, flow, r.URL.Query(), s.callbackURL())
	if err == nil || s.signIn.FailedByIssuer(err) {
		s.failed.giveBack(address, time.Now())
	}
	if err != nil {
		s.showSignInError(w, g.hideIssuerError("sign-in failed", err))
		return
	}
	err = g.checkToken(r, c.Token)
	if err == nil {
		err = s.begin(w, c)
	}
	if err != nil {
		g.options.Logger.Warn("sign-in failed", "error", err)
		s.showSignInError(w, errors.New(status.Convert(err).Message()))
		return
	}
	http.Redirect(w, r, s.url+returnPlace, http.StatusSeeOther)
}

// errAtIssuer is what people see of an error of the issuer.
var errAtIssuer = errors.New("the issuer did not complete it, and the log of the gateway says why")

// hideIssuerError logs an error of the issuer, whose text may have addresses, and returns one without them: strangers
// see it too.
func (g *Gateway) hideIssuerError(what string, err error) error {
	g.options.Logger.Warn(what, "error", err)
	return errAtIssuer
}

// showSignInError shows to a person why the sign-in failed: as text, which is no markup. The address for the next try
// leads to where this one began.
func (s *sessions) showSignInError(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusForbidden)
	fmt.Fprintf(w, "The sign-in failed: %v.\n\nTry again: %s%s\n", err, s.url, returnPlace)
}

// refreshSession exchanges the refresh token of a session. Tabs that send the same one share the result, because an
// issuer accepts a refresh token once. A session never becomes that of somebody else: it ends instead.
func (g *Gateway) refreshSession(w http.ResponseWriter, r *http.Request) error {
	s := g.sessions
	var c session
	if s.signIn == nil || !s.openText(r, sessionCookie, &c) || c.Refresh == "" {
		return status.Error(codes.Unauthenticated, "the session cannot be refreshed: sign in again")
	}
	call, isNew := s.findRefresh(c.Refresh)
	if isNew {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), issuerTimeout)
		defer cancel()
		n := &call.session
		n.Token, n.Refresh, n.Subject, call.err = s.signIn.Refresh(ctx, c.Refresh)
		if call.err != nil {
			call.err = g.hideIssuerError("failed to refresh a session", call.err)
			s.forgetRefresh(c.Refresh) // the issuer may only be unreachable: the next request tries again
		}
		close(call.done)
	}
	select {
	case <-call.done:
	case <-r.Context().Done():
		return status.FromContextError(r.Context().Err()).Err()
	}
	if call.err != nil {
		return status.Error(codes.Unauthenticated, "the session has ended: "+call.err.Error())
	}
	if c.Subject != "" && call.session.Subject != c.Subject { // earlier builds kept none
		g.options.Logger.Warn("session ended: the issuer refreshed it for another subject")
		s.setCookie(w, sessionCookie, "", http.SameSiteStrictMode, -1)
		return status.Error(codes.Unauthenticated, "the session has ended: its new token is of somebody else")
	}
	return s.begin(w, call.session)
}

func (s *sessions) findRefresh(refresh string) (call *refreshCall, isNew bool) {
	key := sha256.Sum256([]byte(refresh))
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.refreshes[key]; c != nil && now.Sub(c.at) <= refreshKept {
		return c, false
	}
	s.dropRefreshes(now)
	call = &refreshCall{done: make(chan struct{}), at: now}
	s.refreshes[key] = call
	return call, true
}

// dropRefreshes drops the results that are no longer needed, and if there is no room for one more, the oldest.
func (s *sessions) dropRefreshes(now time.Time) {
	var oldest [sha256.Size]byte
	at := now
	for k, c := range s.refreshes {
		if now.Sub(c.at) > refreshKept {
			delete(s.refreshes, k)
		} else if !c.at.After(at) {
			oldest, at = k, c.at
		}
	}
	if len(s.refreshes) >= maxRefreshes {
		delete(s.refreshes, oldest)
	}
}

func (s *sessions) forgetRefresh(refresh string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refreshes, sha256.Sum256([]byte(refresh)))
}
