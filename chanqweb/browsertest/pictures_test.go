package browsertest

import (
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var pictures = flag.String("pictures", "", "a `folder` for the documents' pictures of the page: ../../docs/pictures")

// mostPicture is in bytes, because every clone of the repository contains the pictures.
const mostPicture = 200 << 10

// TestPagesOfAShopInTrouble reads the pages of a scene. With -pictures it takes the pictures of the documents again:
//
//	GOWORK=off go test -C chanqweb/browsertest -run PagesOfAShopInTrouble -pictures ../../docs/pictures
func TestPagesOfAShopInTrouble(t *testing.T) {
	s := newScene(t)
	b := newBrowser(t)
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	if *pictures != "" {
		for name, path := range s.pictures {
			b.size(1100, "light")
			if name == "telephone" {
				b.size(390, "light")
			}
			b.see(server.URL + path)
			png := b.shoot("picture-" + name)
			require.Less(t, len(png), mostPicture, name)
			require.NoError(t, os.WriteFile(filepath.Join(*pictures, "ui-"+name+".png"), png, 0o600))
		}
		return
	}
	for _, look := range []look{{"desk-light", 1280, "light"}, {"telephone-dark", 390, "dark"}} {
		b.size(look.width, look.scheme)
		for _, path := range s.shown {
			b.see(server.URL + path)
			b.shoot(look.name + strings.NewReplacer("/", "-", "?", "-").Replace(path))
			b.reads(path+" at "+look.name, look.scheme == "dark")
			if path == "/" {
				needs := evaluate[string](b, `[...document.querySelectorAll(".needs li > :nth-child(2)")].map((e) => e.innerText).join(" ")`)
				require.ElementsMatch(t, []string{"payments", "invoices", "thumbnails", "emails", "newsletter"}, strings.Fields(needs))
			}
			if look.width < 500 {
				require.Empty(t, evaluate[string](b, `[...document.querySelectorAll(".scroll:has(.cards)")].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.innerText).join()`), "the cards of %s fit", path)
			} else if path == "/" {
				apart := evaluate[float64](b, `(([a, b, c]) => Math.abs(b.left - a.right - (c.left - b.right)))([...document.querySelectorAll(".head > a")].map((e) => e.getBoundingClientRect()))`)
				require.Less(t, apart, 1.0, "the links to other pages are in one group at %s", look.name)
			}
		}
	}
	b.quiet()
}
