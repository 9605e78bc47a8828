package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/inspect"
)

// The page of 50,000 nodes on which 10,000 classes wait holds few elements and gets few bytes, counts all of it, finds work by its
// name, explains it, and opens a group of nodes.
func TestPageOfAConstellation(t *testing.T) {
	ctx, said := browser(t)
	ledger := &orbit.MemoryLedger{Bounds: orbit.Limits{Commitments: 1 << 20}}
	commit := func(do []orbit.Commitment) {
		t.Helper()
		_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: do})
		require.NoError(t, err)
	}
	var nodes, waiting []orbit.Commitment
	for i := range 50_000 {
		n := orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%05d", i)), Labels: map[string]string{"zone": fmt.Sprint("z", i%5), "rack": fmt.Sprint("r", i/40)},
			Capacity: orbit.Resources{orbit.CPU: 8000, orbit.Memory: 32 << 30}}
		if i%1000 == 999 {
			n.State = orbit.Cordoned
		}
		nodes = append(nodes, orbit.PutNode{Node: n})
	}
	commit(nodes)
	for i := range int64(10_000) {
		waiting = append(waiting, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprintf("job-%05d", i))},
			Spec: &orbit.Spec{Module: "batch", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 9000 + i, orbit.Memory: 1 << 30}}}})
	}
	commit(waiting)
	page := &inspect.Handler{Ledger: ledger}
	site := httptest.NewServer(page)
	t.Cleanup(func() {
		_ = page.Close()
		site.Close()
	})

	do(ctx, t, chromedp.EmulateViewport(1400, 1000), chromedp.Navigate(site.URL+"/"))
	eventually(ctx, t, `(() => {
		const total = Object.fromEntries([...document.querySelectorAll("#totals div")].map(d => [d.children[0].textContent, +d.children[1].textContent.replaceAll(",", "")]));
		return total.nodes === 50000 && total.ready === 49950 && total.cordoned === 50;
	})()`)
	eventually(ctx, t, `document.querySelectorAll("#zones .zone").length === 5 && document.querySelectorAll("#zones .cell").length > 500`)
	eventually(ctx, t, `document.querySelectorAll("#waiting-rows tbody tr").length === 60 && document.querySelector("#waiting-more").textContent === "and 9,940 more kinds of work"`)
	eventually(ctx, t, `document.querySelectorAll("*").length < 8000`)
	eventually(ctx, t, `(window.fetched ??= fetch("api/state").then(r => r.text()).then(t => window.bytes = t.length)) && window.bytes < 500000`)

	do(ctx, t, chromedp.Focus(chromedp.CSS(`#zones .cell`)), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS(`#detail tr`)), chromedp.KeyEvent(kb.Escape))
	find := func(name string) {
		t.Helper()
		eventually(ctx, t, `(document.querySelector("#search").value = "") === ""`)
		do(ctx, t, chromedp.SendKeys(chromedp.CSS(`#search`), name+kb.Enter), chromedp.WaitVisible(chromedp.CSS(`#detail`)))
	}
	find("n49999") // neither it nor the capsule is in a list
	eventually(ctx, t, `document.querySelector("#detail-title").textContent === "node n49999" && document.querySelector("#detail-body").textContent.includes("cordoned")`)
	do(ctx, t, chromedp.KeyEvent(kb.Escape))
	find("job-09999")
	eventually(ctx, t, `document.querySelector("#detail-body").textContent.includes("fits on none of 50,000 nodes")`)
	eventually(ctx, t, `document.querySelector("#detail [data-says]").textContent.startsWith("no node is that large")`)
	do(ctx, t, chromedp.KeyEvent(kb.Escape))

	// What changes is shown, with 50,000 nodes as with ten.
	commit([]orbit.Commitment{orbit.RemoveNode{Node: "n00000"}})
	eventually(ctx, t, `document.querySelector("#totals").textContent.includes("49,999")`)
	require.Empty(t, slices.DeleteFunc(said(), func(line string) bool { return strings.Contains(line, "api/node?id=job-09999") })) // 404: it is no node
	require.Equal(t, http.StatusOK, status(t, site.URL+"/api/state"))
}

// status returns the status of a request.
func status(t *testing.T, url string) int {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	return response.StatusCode
}
