package browsertest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
)

var pictures = flag.String("pictures", "", "a `folder` for the documents' pictures of the page: ../../docs/pictures")

// mostPicture is in bytes, because every clone of the repository contains the pictures.
const mostPicture = 120 << 10

// TestPicturesOfTheDocuments takes them again, in a light window:
//
//	GOWORK=off go test -C chanqweb/browsertest -run PicturesOfTheDocuments -pictures ../../docs/pictures
func TestPicturesOfTheDocuments(t *testing.T) {
	if *pictures == "" {
		t.Skip("-pictures names no folder")
	}
	shop := webshop.New(t, testdb.SQLite)
	shop.Fill()
	url := open(shop, webshop.Everything, func(c *chanqweb.Config) { c.History = webshop.Waves{} })
	b := newBrowser(t)
	dead, err := testdb.Peek(t.Context(), shop.Mail, chanqadmin.StateDead, 1)
	require.NoError(t, err)
	for _, p := range []struct {
		name, path string
		width      int64
	}{
		{"overview", "/", 1100}, {"queue", "/q/mail/", 1100}, {"failures", "/q/mail/failures", 1100}, {"message", "/q/mail/m/" + dead[0].ID.String(), 1100},
		{"telephone", "/", 390},
	} {
		b.size(p.width, "light")
		b.see(url + p.path)
		png := b.shoot("picture-" + p.name)
		require.Less(t, len(png), mostPicture, p.name)
		require.NoError(t, os.WriteFile(filepath.Join(*pictures, "ui-"+p.name+".png"), png, 0o600))
	}
}
