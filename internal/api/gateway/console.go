package gateway

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"google.golang.org/grpc/codes"
)

// ConsoleOptions configure the web console.
type ConsoleOptions struct {
	// Files are the page index.html and what it loads. Required.
	Files fs.FS
	// ReadOnly refuses all that pages in a browser would change.
	ReadOnly bool
	// Version is shown.
	Version string
	// Links lead from runs to other systems.
	Links ConsoleLinks
	// Sessions lets people sign in; nil: the gateway acts with a credential of its own, or the nodes ask for none.
	Sessions *SessionOptions
}

// consolePolicy allows the console its own files and calls of this gateway, and nothing else: no inline script or
// style, no other host, no frame. Texts cannot become markup, because the page has no Trusted Types policy.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// consoleConfig is what the page reads at its start, before anybody has signed in.
type consoleConfig struct {
	Version  string `json:"version,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Links lead from runs to other systems.
	Links ConsoleLinks `json:"links,omitzero"`
	// SignIn are the ways to sign in; nil: there is none.
	SignIn *signInConfig `json:"signIn,omitempty"`
}

// signInConfig are the ways to sign in.
type signInConfig struct {
	Token bool `json:"token"`
	// Provider is the name of the issuer; "" if there is none.
	Provider string `json:"provider,omitempty"`
}

func configOf(o *ConsoleOptions) consoleConfig {
	c := consoleConfig{Version: o.Version, ReadOnly: o.ReadOnly, Links: o.Links}
	if o.Sessions != nil {
		c.SignIn = &signInConfig{Token: true}
		if o.Sessions.SignIn != nil {
			c.SignIn.Provider = o.Sessions.SignIn.Name()
		}
	}
	return c
}

// consoleHandler serves the files of the console. They are the same for everybody.
type consoleHandler struct {
	readOnly bool
	files    map[string]*consoleFile // by path
}

// consoleFile is a file as it is sent.
type consoleFile struct {
	kind, etag       string
	plain, shortened []byte
}

// newConsoleHandler reads and compresses all files.
func newConsoleHandler(o *ConsoleOptions) (*consoleHandler, error) {
	h := &consoleHandler{readOnly: o.ReadOnly, files: map[string]*consoleFile{}}
	err := fs.WalkDir(o.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(o.Files, name)
		if err != nil {
			return err
		}
		return h.addFile("/"+name, content)
	})
	if err != nil {
		return nil, fmt.Errorf("read the console: %w", err)
	}
	config, err := json.Marshal(configOf(o))
	if err == nil {
		err = h.addFile("/console.json", config)
	}
	if err != nil {
		return nil, err
	}
	page, ok := h.files["/index.html"]
	if !ok {
		return nil, fmt.Errorf("read the console: index.html: %w", fs.ErrNotExist)
	}
	h.files["/"] = page
	return h, nil
}

// kinds are the types of files whose extension the system may not know, or may know otherwise.
var kinds = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	".html": "text/html; charset=utf-8", ".json": "application/json", ".txt": "text/plain; charset=utf-8",
}

func (h *consoleHandler) addFile(name string, content []byte) error {
	kind := kinds[path.Ext(name)]
	if kind == "" {
		kind = mime.TypeByExtension(path.Ext(name))
	}
	var shortened bytes.Buffer
	w, err := gzip.NewWriterLevel(&shortened, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	h.files[name] = &consoleFile{
		kind: kind, etag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
		plain: content, shortened: shortened.Bytes(),
	}
	return nil
}

// serves reports whether a path is one of the console; also without a console none is.
func (h *consoleHandler) serves(urlPath string) bool { return h != nil && h.files[urlPath] != nil }

func (h *consoleHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		handleRoutingError(r.Context(), nil, nil, w, r, http.StatusMethodNotAllowed)
		return
	}
	f := h.files[r.URL.Path]
	header := w.Header()
	header.Set("Content-Security-Policy", consolePolicy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache") // a browser asks each time whether its copy is current
	header.Set("ETag", f.etag)
	header.Set("Vary", "Accept-Encoding")
	header.Set("Content-Type", f.kind)
	if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	content := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		content = f.shortened
	}
	_, _ = w.Write(content)
}

// checkReadOnly refuses changes by pages in a browser. Browsers set these headers, and scripts of pages cannot.
// Programs are not concerned: the nodes decide by their roles.
func (h *consoleHandler) checkReadOnly(r *http.Request) error {
	// Without TLS browsers send no Sec-Fetch-Site, except on loopback.
	isPage := r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != ""
	if h == nil || !h.readOnly || !isPage || r.Method == http.MethodGet || r.Method == http.MethodHead ||
		isReadingPost(r) || strings.HasPrefix(r.URL.Path, sessionPath) {
		return nil
	}
	return withReason(codes.PermissionDenied, "READ_ONLY_CONSOLE", "this console is read-only")
}

// isReadingPost reports whether a request is a POST that changes nothing. The path is compared as it was sent: a job may be
// called jobs:plan.
func isReadingPost(r *http.Request) bool {
	path := r.URL.EscapedPath()
	parts := strings.Split(path, "/") // "", v1, namespaces, a name, jobs:plan
	plans := len(parts) == 5 && parts[1] == "v1" && parts[2] == "namespaces" && parts[4] == "jobs:plan"
	return r.Method == http.MethodPost && (plans || path == "/v1/schedules:preview")
}
