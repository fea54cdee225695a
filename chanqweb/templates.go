package chanqweb

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/chanq/chanq"
)

//go:embed templates assets
var files embed.FS

// pages are the templates and the static files.
type pages struct {
	templates map[string]*template.Template
	assets    map[string]asset
	version   string // a hash of the assets, which is part of their addresses, so that browsers may cache them
}

type asset struct {
	kind string
	body []byte
}

var kinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// stampOf is a time that templates show.
type stampOf struct{ time.Time }

func loadPages() *pages {
	p := &pages{templates: map[string]*template.Template{}, assets: map[string]asset{}}
	sum := sha256.New()
	for _, e := range must(files.ReadDir("assets")) {
		body := must(files.ReadFile("assets/" + e.Name()))
		p.assets[e.Name()] = asset{kinds[e.Name()[strings.LastIndexByte(e.Name(), '.'):]], body}
		sum.Write(body)
	}
	p.version = hex.EncodeToString(sum.Sum(nil))[:12]
	shared := template.Must(template.New("").Funcs(p.functions()).ParseFS(files, "templates/shared/*.html"))
	for _, name := range must(fs.Glob(files, "templates/*.html")) {
		page := strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], ".html")
		p.templates[page] = template.Must(template.Must(shared.Clone()).ParseFS(files, name))
	}
	return p
}

// must is for operations on embedded files, which cannot fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (p *pages) functions() template.FuncMap {
	return template.FuncMap{
		"version":   func() string { return p.version },
		"limited":   limited,
		"grouped":   func(n int) string { return grouped(int64(n)) },
		"lasting":   lasting,
		"old":       old,
		"stale":     stale,
		"millis":    func(at, now time.Time) int64 { return max(0, now.Sub(at).Milliseconds()) },
		"clock":     func(t time.Time) string { return t.UTC().Format("15:04:05 UTC") },
		"ago":       ago,
		"exact":     exact,
		"stamp":     stamp,
		"sized":     sized,
		"brief":     brief,
		"printable": printable,
		"when":      whenOf,
		"holder":    holder,
		"percent":   func(n, of int) int { return max(1, n*100/max(1, of)) },
		"ordered":   func(k chanq.Kind) bool { return k == chanq.KindOrdered },
		"share":     func(done float64) string { return strconv.Itoa(int(done*100)) + " %" },
		"jobs": func(list []chanq.ID, of *view) map[string]any {
			return map[string]any{"List": list, "Root": of.Root, "Queue": of.Data.(batchData).Queue}
		},
		"times": func(t time.Time, now time.Time) map[string]any { return map[string]any{"At": t, "Now": now} },
		"since": func(t, now time.Time) string {
			if t.IsZero() {
				return "–"
			}
			return lasting(now.Sub(t))
		},
		"consumers": func(list []consumerLine, v *view, page bool) map[string]any {
			return map[string]any{"List": list, "View": v, "Page": page}
		},
	}
}

// render executes a template of a page: the whole layout, or the part that updates.
func (p *pages) render(page, part string, data any) ([]byte, error) {
	t := p.templates[page]
	if t == nil {
		return nil, fmt.Errorf("no template %q", page)
	}
	var b bytes.Buffer
	err := t.ExecuteTemplate(&b, part, data)
	return b.Bytes(), err
}

// asset serves a static file. A browser may cache it, because its address includes the version.
func (p *pages) asset(w http.ResponseWriter, r *http.Request) {
	a, known := p.assets[r.PathValue("name")]
	if !known {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	if r.URL.Query().Get("v") == p.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(a.body) // an error means that the visitor has disconnected
}
