package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// picture is where the picture of the README is; ORBIT_PICTURE=1 makes it anew.
const picture = "../../docs/live.png"

// site serves a cluster on an address, which stays the same when the site is started anew.
type site struct {
	t      *testing.T
	addr   string
	c      *cluster
	server *http.Server
	end    func()
}

func start(t *testing.T, addr string) *site {
	to, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	require.NoError(t, err)
	c, err := open(t.Context(), 20*time.Second)
	require.NoError(t, err)
	s := &site{t: t, addr: to.Addr().String(), c: c, server: &http.Server{Handler: c.mux, ReadHeaderTimeout: time.Second}}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { c.live(ctx) })
	group.Go(func() { _ = s.server.Serve(to) }) // ErrServerClosed
	s.end = sync.OnceFunc(func() {
		stop()
		_ = c.page.Close()
		_ = s.server.Close()
		group.Wait()
	})
	t.Cleanup(s.end)
	return s
}

// browser opens a headless Chromium, which is among Debian's packages, and collects what its console says. Without one the test is
// skipped, unless ORBIT_BROWSER says that there has to be one.
func browser(t *testing.T) (ctx context.Context, said func() []string) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		require.Empty(t, os.Getenv("ORBIT_BROWSER"), "there is no browser")
		t.Skip("there is no Chromium here: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	var mu sync.Mutex
	var lines []string
	add := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprintf(format, args...))
	}
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			add("exception: %+v", e.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			add("console: %s %v", e.Type, e.Args)
		case *log.EventEntryAdded:
			add("log: %s %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	}))
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx)) // starts the browser; a time limit of its own would end with the first call
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(lines)
	}
}

// eventually waits until an expression of JavaScript holds.
func eventually(ctx context.Context, t *testing.T, expression string) {
	t.Helper()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(60*time.Second)))
	require.NoError(t, err, expression)
}

// do does steps in the browser.
func do(ctx context.Context, t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(ctx, steps...))
}

// TestPage drives the page in a browser: nodes are drawn, a race and its receipt are seen, what waits is explained, queues lend and borrow, a node opens by
// keyboard, a broken rule is listed, the page goes on when the process is started anew, it fits a phone, and the console has nothing to say.
func TestPage(t *testing.T) {
	ctx, said := browser(t)
	s := start(t, "127.0.0.1:0")
	do(ctx, t, chromedp.EmulateViewport(1280, 1000), chromedp.Navigate("http://"+s.addr+"/"))
	eventually(ctx, t, `document.querySelectorAll("#zones .cell[data-node]").length === 240`)
	eventually(ctx, t, `document.querySelectorAll("#zones .zone").length === 3`)
	eventually(ctx, t, `document.querySelector("#status").dataset.state === "live"`)
	eventually(ctx, t, `[...document.querySelectorAll("#zones .cell")].some(c => +c.style.getPropertyValue("--fill") > 0.5)`)
	eventually(ctx, t, `[...document.querySelectorAll("#feed li[data-outcome=conflict]")].some(li => li.textContent.includes("came first at revision"))`)
	eventually(ctx, t, `document.querySelectorAll("#engine-rows tbody tr").length >= 5`)
	eventually(ctx, t, `/^engines of this process only: they have placed [1-9][\d,]* capsules since they were first seen; [1-9][\d,]* are placed now, by whomever$/.test(document.querySelector("#engines-whose").textContent)`)
	eventually(ctx, t, `document.querySelectorAll("#rules-body tr").length >= 3`)

	// Research borrows what reports lend, the bars of a tree have one scale, and a queue opens.
	eventually(ctx, t, `document.querySelectorAll("#trees .queue").length === 4`)
	eventually(ctx, t, `+document.querySelector('[data-queue=research] [data-part=borrowed]').dataset.amount > 0 && +document.querySelector('[data-queue=reports] [data-part=lent]').dataset.amount > 0`)
	eventually(ctx, t, `(() => {
		const scale = [...document.querySelectorAll("#trees .shares i")].filter(i => +i.dataset.amount > 200000).map(i => i.getBoundingClientRect().width / i.dataset.amount);
		return scale.length > 3 && Math.max(...scale) < 1.01 * Math.min(...scale);
	})()`)
	do(ctx, t, chromedp.Click(chromedp.CSS(`[data-queue=research] button`)))
	eventually(ctx, t, `document.querySelector("#detail").open && document.querySelector("#detail-body").textContent.includes("below tasks, weight 1, share ")`)
	do(ctx, t, chromedp.KeyEvent(kb.Escape))

	// What waits is explained, and there is a way to help.
	do(ctx, t, chromedp.Click(chromedp.CSS(`[data-explain="capsule=huge"]`)), chromedp.WaitVisible(chromedp.CSS(`#detail [data-explained]`)))
	eventually(ctx, t, `document.querySelector("#detail-body").textContent.includes("fits on none of 240 nodes")`)
	eventually(ctx, t, `document.querySelector("#detail [data-says]").textContent.startsWith("no node is that large: the largest has ")`)
	eventually(ctx, t, `[...document.querySelectorAll("#detail .fix")].some(f => f.textContent === "add a node with at least 40 cores and 16 GiB of memory")`)
	eventually(ctx, t, `document.querySelectorAll("#detail .fix").length > 0 && document.querySelectorAll("#detail .reasons").length > 0`)
	do(ctx, t, chromedp.KeyEvent(kb.Escape))
	eventually(ctx, t, `!document.querySelector("#detail").open`)

	// All amounts are in cores and GiB; none is a number of cpu.
	eventually(ctx, t, `[...document.querySelectorAll("#waiting-rows tbody tr")].find(tr => tr.textContent.startsWith("huge")).cells[2].textContent === "40 cores, 16 GiB of memory"`)
	eventually(ctx, t, `asks([{ name: "cpu", unit: "milli", amount: 1000 }, { name: "cpu", unit: "milli", amount: 250 }, { name: "devices", unit: "milli", amount: 1500 }, { name: "pods", amount: 2 }]) === "1 core, 0.25 cores, 1.5 devices, 2 pods"`)
	eventually(ctx, t, `(() => {
		const lost = { outcome: "conflict", steps: [], reason: "node n has no room", dimension: "cpu", want: 2000 };
		showRounds({ boot, rounds: [{ engine: "units", view: 1, receipts: [lost, { ...lost, dimension: "memory", want: 2 ** 31, free: 2 ** 30 }] }] });
		const texts = [...document.querySelectorAll("#feed > li[data-engine=units]")].map(li => { li.remove(); return li.textContent; });
		return texts[0].includes(": wants 2 cores, 0 cores free") && texts[1].includes(": wants 2 GiB of memory, 1 GiB free");
	})()`)
	eventually(ctx, t, `/^uses [\d.,]+ of [\d.,]+ cores, /.test(document.querySelector('[data-queue=research] p').textContent)`)
	eventually(ctx, t, `!/\d cpu/.test(document.body.innerText)`)

	// A node opens by keyboard.
	do(ctx, t, chromedp.Focus(chromedp.CSS(`#zones .cell[data-node="a0-0"]`)), chromedp.KeyEvent(kb.ArrowRight))
	eventually(ctx, t, `document.activeElement.dataset.node === "a0-1"`)
	do(ctx, t, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS(`#detail tr`)))
	eventually(ctx, t, `document.querySelector("#detail-title").textContent === "node a0-1" && document.querySelector("#detail-body").textContent.includes("cpu")`)
	do(ctx, t, chromedp.KeyEvent(kb.Escape))

	// Zone b fails; this is the moment for the picture.
	eventually(ctx, t, `document.querySelectorAll('#zones .cell[data-state="lost"]').length >= 80`)
	do(ctx, t, chromedp.Click(chromedp.CSS(`#lost-only`)))
	eventually(ctx, t, `[...document.querySelectorAll("#feed li")].every(li => li.offsetParent === null || li.dataset.refused !== undefined)`)
	// The counts of nodes add up, and the text of the search, the engine and the pause choose what is shown.
	eventually(ctx, t, `(() => {
		const total = Object.fromEntries([...document.querySelectorAll("#totals div")].map(d => [d.children[0].textContent, +d.children[1].textContent.replaceAll(",", "")]));
		return total.nodes === 240 && total.lost >= 80 && total.ready + (total.cordoned || 0) + total.lost === total.nodes;
	})()`)
	eventually(ctx, t, `(() => { const s = document.querySelector("#search"); s.value = "huge"; s.dispatchEvent(new Event("input")); return true; })()`)
	eventually(ctx, t, `(() => {
		const rows = [...document.querySelectorAll("#waiting-rows tbody tr")].filter(tr => !tr.hidden);
		return rows.length === 1 && rows[0].textContent.startsWith("huge");
	})()`)
	eventually(ctx, t, `(() => { const s = document.querySelector("#search"); s.value = ""; s.dispatchEvent(new Event("input")); return true; })()`)
	eventually(ctx, t, `[...document.querySelectorAll("#waiting-rows tbody td[data-why]")].every(td => td.textContent !== " explain" && td.cellIndex === [...document.querySelectorAll("#waiting-rows th")].findIndex(th => th.textContent === "why"))`)
	// A conflict is ordinary and not painted red; what does not fit is, also where it is folded into one row with conflicts.
	eventually(ctx, t, `(() => {
		const refused = (...outcomes) => ({ engine: "paint", view: 1, receipts: outcomes.map(outcome => ({ outcome, steps: [] })) });
		const colour = (round) => { showRounds({ boot, rounds: [round] }); const li = document.querySelector("#feed > li[data-engine=paint]"), c = getComputedStyle(li).borderLeftColor; li.remove(); return c; };
		const sample = document.body.appendChild(document.createElement("i"));
		sample.style.color = "var(--bad)";
		const red = getComputedStyle(sample).color;
		sample.remove();
		return colour(refused("conflict")) !== red && colour(refused("conflict", "conflict", "conflict", "conflict")) !== red &&
			["infeasible", "invalid", "failed", "unknown"].every(o => colour(refused(o)) === red && colour(refused("conflict", "conflict", "conflict", o)) === red);
	})()`)
	// An engine that stands by is no trouble, and one that runs and makes no passes is.
	eventually(ctx, t, `(() => {
		const [away, dead] = [{ standby: true }, { silent: true }].map(e => document.querySelector("#engine-rows tbody td").appendChild(silence(e)));
		const painted = (el) => getComputedStyle(el).backgroundColor !== "rgba(0, 0, 0, 0)";
		const right = away.textContent === "stands by" && !painted(away) && dead.textContent === "has made no pass" && painted(dead) && silence({}) === "";
		away.remove(), dead.remove();
		return right;
	})()`)
	// Equal passes in a row have one row.
	eventually(ctx, t, `(() => {
		const pass = { engine: "again", pending: 1, committed: 0, proposed: 0, conflicts: 0, unplaced: 1, planning: 900, view: 1 };
		showRounds({ boot, rounds: [pass, { ...pass, view: 2 }, { ...pass, engine: "other" }, { ...pass, view: 3, planning: 800 }] });
		const rows = [...document.querySelectorAll("#feed li[data-engine=again], #feed li[data-engine=other]")];
		rows.forEach(li => li.remove());
		return rows.length === 2 && rows[0].textContent.includes("at revision 3") && rows[0].querySelector("[data-times]").textContent === "3 times";
	})()`)
	eventually(ctx, t, `(() => { const e = document.querySelector("#engine"); e.value = e.options[1].value; e.dispatchEvent(new Event("change")); return true; })()`)
	eventually(ctx, t, `[...document.querySelectorAll("#feed > li")].every(li => li.hidden || li.dataset.engine === document.querySelector("#engine").value)`)
	eventually(ctx, t, `(() => { const e = document.querySelector("#engine"); e.value = ""; e.dispatchEvent(new Event("change")); return true; })()`)
	do(ctx, t, chromedp.Click(chromedp.CSS(`#pause`)))
	revision, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector("[data-total=revision]").textContent`))
	require.NoError(t, err)
	before, err := s.c.page.Ledger.Snapshot(ctx)
	require.NoError(t, err)
	_, err = s.c.page.Ledger.Wait(ctx, before.Revision())
	require.NoError(t, err)
	eventually(ctx, t, `document.querySelector("[data-total=revision]").textContent === "`+revision+`"`)
	do(ctx, t, chromedp.Click(chromedp.CSS(`#pause`)))
	eventually(ctx, t, `document.querySelector("[data-total=revision]").textContent !== "`+revision+`"`)
	do(ctx, t, chromedp.EmulateViewport(1280, 1000))
	wide := shot(ctx, t)
	do(ctx, t, chromedp.Click(chromedp.CSS(`#lost-only`)))
	if os.Getenv("ORBIT_PICTURE") != "" {
		require.NoError(t, os.WriteFile(picture, wide, 0o644))
	}

	// It comes back, and what it has broken is told.
	eventually(ctx, t, `[...document.querySelectorAll("#rules-body tr")].some(tr => /^maileven over zone(a|c)\d+, and \d+ may be$/.test(tr.textContent))`)

	// The process ends, and another one begins at the same address.
	s.end()
	eventually(ctx, t, `document.querySelector("#status").dataset.state === "lost"`)
	start(t, s.addr)
	eventually(ctx, t, `document.querySelector("#status").dataset.state === "live" && document.querySelector("#status").textContent.includes("restarted once")`)
	eventually(ctx, t, `document.querySelectorAll("#zones .cell[data-node]").length === 240 && document.querySelectorAll('#zones .cell[data-state="lost"]').length === 0`)

	// On a phone nothing is wider than the screen, also in the dark.
	do(ctx, t, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), chromedp.Func(func(ctx context.Context, to *chromedp.Target) error {
		_, err := cdp.Call(ctx, to, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
		return err
	}))
	eventually(ctx, t, `document.documentElement.scrollWidth <= 390`)
	back, err := chromedp.Run(ctx, chromedp.Evaluate[string](`getComputedStyle(document.body).backgroundColor`))
	require.NoError(t, err)
	require.Equal(t, "rgb(17, 21, 28)", back)
	shot(ctx, t)

	for _, line := range said() { // that the server was away for a moment is no fault of the page
		require.Truef(t, strings.Contains(line, "ERR_CONNECTION_REFUSED") || strings.Contains(line, "ERR_INCOMPLETE_CHUNKED_ENCODING") ||
			strings.Contains(line, "ERR_EMPTY_RESPONSE") || strings.Contains(line, "ERR_CONNECTION_RESET"), "the console says %s", line)
	}
}

// shot takes a picture, and checks that it shows more than one colour. With ORBIT_SHOTS set it keeps it in that folder.
func shot(ctx context.Context, t *testing.T) (out []byte) {
	out, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	img, err := png.Decode(bytes.NewReader(out))
	require.NoError(t, err)
	colours := map[any]bool{}
	for x := 0; x < img.Bounds().Dx(); x += 3 {
		for y := 0; y < img.Bounds().Dy(); y += 3 {
			colours[img.At(x, y)] = true
		}
	}
	require.Greater(t, len(colours), 20)
	if folder := os.Getenv("ORBIT_SHOTS"); folder != "" {
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/%dx%d.png", folder, img.Bounds().Dx(), img.Bounds().Dy()), out, 0o644))
	}
	return out
}

// TestRun runs the example for two seconds, and finds its work done.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	require.NoError(t, run(ctx, "127.0.0.1:0", time.Second))
	err := run(t.Context(), "127.0.0.1:-1", time.Second)
	require.ErrorContains(t, err, "-listen")
	require.NoError(t, ignore(errors.ErrUnsupported, errors.ErrUnsupported))
}
