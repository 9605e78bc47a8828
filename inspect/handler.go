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
	"time"

	"github.com/orbitsched/orbit"
)

// Handler serves the page and its API under the path that it is mounted on, which must end in a slash. It needs no http.StripPrefix
// and works with one. Set the fields before first use.
type Handler struct {
	// Ledger is the ledger to show. It is only read. Required.
	Ledger orbit.Ledger
	// Zone and Rack are the labels of nodes by which the page arranges them; default "zone" and "rack". Nodes without one are
	// shown together.
	Zone, Rack string
	// Every is how often a client is sent what is new at most; default 250 ms. Where a frame takes long, as with many nodes and
	// capsules, it is made less often, so that frames take at most a twentieth of one processor.
	Every time.Duration
	// Clients is how many clients may follow the events at a time; default 32. More are refused with 503.
	Clients int
	// Hosts are the names, without a port, under which the page may be asked for; empty: any. Name them where the page listens on a
	// loopback address, so that no name of a stranger's that resolves to it can be used to read the page.
	Hosts []string

	once   sync.Once
	log    roundLog
	frames frames
	// Holds a token while something is being explained.
	explaining chan struct{}
	// Closed by Close.
	done      chan struct{}
	closeOnce sync.Once

	// Guards what follows.
	mu sync.Mutex
	// How many clients follow the events.
	clients int
}

func (h *Handler) init() {
	h.once.Do(func() {
		h.explaining = make(chan struct{}, 1)
		h.done = make(chan struct{})
		h.log.start()
	})
}

// Close ends all streams of events, and new ones at once, so that http.Server.Shutdown does not wait for them; hand it to
// http.Server.RegisterOnShutdown. It always returns nil.
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

// page has the embedded files by name.
var page = func() map[string]*asset {
	kinds := map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	out := map[string]*asset{}
	files, _ := fs.Glob(assets, "assets/*") // the pattern is right
	for _, name := range files {
		body, _ := assets.ReadFile(name) // it is there
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

// serveAPI answers a request of the API.
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
	head.Set("Cache-Control", "no-cache") // the next version of the library has another page
	head.Set("Content-Type", a.kind)
	head.Set("Etag", a.etag)
	head.Set("X-Frame-Options", "DENY")
	head.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.body))
}

// fail answers with a status and what to do.
func fail(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why}) // the client may have gone
}

// answer answers with a value.
func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(value) // the client may have gone
}
