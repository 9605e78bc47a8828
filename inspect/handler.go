package inspect

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
)

// Handler serves the page and its API under the path on which it is mounted. The path must end in a slash. Handler
// works with http.StripPrefix and without it. Set the fields before first use.
type Handler struct {
	// Ledger is the ledger that the page shows. It is required. The handler never writes to it.
	Ledger orbit.Ledger
	// Zone and Rack are the node labels by which the page groups nodes. The defaults are "zone" and "rack". Nodes that
	// lack a label form a group of their own.
	Zone, Rack string
	// Every is the shortest time between two updates to a client. The default is 250 ms. With many nodes and capsules
	// an update takes long to compute. Updates are then made less often, so that computing them takes at most a
	// twentieth of one processor.
	Every time.Duration
	// Clients is how many clients may follow the events at the same time. The default is 32. More clients are refused
	// with status 503.
	Clients int
	// Hosts are the host names, without a port, that a request may name. If it is empty, all names are accepted. Set it
	// if the server listens on a loopback address. Otherwise a hostile site can make its own name resolve to that
	// address and read the page from the user's browser (DNS rebinding).
	Hosts []string
	// Find returns the capsule that a request for an explanation names otherwise than by its ID, such as by the name of a
	// pod; empty: there is none. It is asked only if no capsule has the name as its ID. Nil: only IDs are known.
	Find func(state *orbit.State, name string) orbit.CapsuleID
	// Engines are engines of this process, which the page lists from the start, also if there is never work for them. Other
	// engines are listed once Round was called with a round of theirs.
	Engines []*orbit.Engine

	once   sync.Once
	log    roundLog
	frames frames
	// known is the state that was read last; nil: none was.
	known atomic.Pointer[known]
	// explaining holds a token while an explanation is being made.
	explaining chan struct{}
	// done is closed by Close.
	done      chan struct{}
	closeOnce sync.Once

	// mu guards clients.
	mu sync.Mutex
	// clients is how many clients follow the events.
	clients int
}

func (h *Handler) init() {
	h.once.Do(func() {
		h.explaining, h.frames.turn = make(chan struct{}, 1), make(chan struct{}, 1)
		h.done = make(chan struct{})
		h.log.start(h.Engines)
	})
}

// Close ends all event streams. A stream that is opened later ends after its first events. Without Close,
// http.Server.Shutdown would wait for the streams, so call Close from a function that is registered with
// http.Server.RegisterOnShutdown. Close always returns nil.
func (h *Handler) Close() error {
	h.init()
	h.closeOnce.Do(func() { close(h.done) })
	return nil
}

//go:embed assets
var assets embed.FS

// asset is an embedded file.
type asset struct {
	name, kind, etag string
	body             []byte
}

// page maps the names of the embedded files to the files.
var page = func() map[string]*asset {
	kinds := map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	out := map[string]*asset{}
	files, _ := fs.Glob(assets, "assets/*") // the only error is a malformed pattern
	for _, name := range files {
		body, _ := assets.ReadFile(name) // cannot fail: the glob has found the file
		sum := sha256.Sum256(body)
		out[path.Base(name)] = &asset{path.Base(name), kinds[path.Ext(name)], `"` + hex.EncodeToString(sum[:8]) + `"`, body}
	}
	return out
}()

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.init()
	head := w.Header()
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-store")
	base, index := path.Base(r.URL.Path), strings.HasSuffix(r.URL.Path, "/")
	switch why := h.refusal(r, index); {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		head.Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "the page is read only; use GET")
	case why != "":
		fail(w, http.StatusForbidden, why)
	case h.Ledger == nil:
		fail(w, http.StatusInternalServerError, "inspect.Handler has no Ledger; set it before the handler is mounted")
	case index:
		h.serveAsset(w, r, page["index.html"])
	case path.Base(path.Dir(r.URL.Path)) == "api":
		h.serveAPI(w, r, base)
	case page[base] != nil:
		h.serveAsset(w, r, page[base])
	default:
		fail(w, http.StatusNotFound, "there is no "+base+"; the page is at the path that ends in a slash")
	}
}

// serveAPI calls the method that answers the API request with the given name.
func (h *Handler) serveAPI(w http.ResponseWriter, r *http.Request, name string) {
	switch name {
	case "state":
		h.serveState(w, r)
	case "nodes":
		h.serveNodes(w, r)
	case "node":
		h.serveNode(w, r)
	case "explain":
		h.serveExplain(w, r)
	case "events":
		h.serveEvents(w, r)
	default:
		fail(w, http.StatusNotFound, "the API has state, nodes, node, explain and events, and no "+name)
	}
}

func (h *Handler) serveAsset(w http.ResponseWriter, r *http.Request, a *asset) {
	head := w.Header()
	head.Set("Cache-Control", "no-cache") // ask each time: a new version of the library may change the file
	head.Set("Content-Type", a.kind)
	head.Set("Etag", a.etag)
	head.Set("X-Frame-Options", "DENY")
	head.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.body))
}

// fail answers with an error status. The text says what is wrong and what to do.
func fail(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why}) // the client may have gone
}

// answer sends a value as JSON with status 200.
func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(value) // the client may have gone
}
