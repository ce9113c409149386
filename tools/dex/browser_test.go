package dex_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// browser is a user who fills in the forms of Dex.
type browser struct {
	t      *testing.T
	client *http.Client
}

func (p *provider) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	client := *p.server.Client()
	client.Jar = jar
	return &browser{p.t, &client}
}

// approve goes from the address that the command line shows to the page that says that it is done.
func (b *browser) approve(address, password string) (page string) {
	b.t.Helper()
	answer, err := b.client.Get(address)
	for range 5 {
		if err != nil {
			b.t.Fatal(err)
		}
		text := new(strings.Builder)
		document, parseErr := html.Parse(answer.Body)
		answer.Body.Close()
		if parseErr != nil || html.Render(text, document) != nil {
			b.t.Fatal(parseErr)
		}
		form := find(document, "form")
		if form == nil || strings.Contains(text.String(), "login-error") {
			return text.String()
		}
		fields := url.Values{}
		for _, input := range findAll(form, "input") {
			fields.Set(attribute(input, "name"), attribute(input, "value"))
		}
		if _, asked := fields["password"]; asked {
			fields.Set("login", email)
			fields.Set("password", password)
		}
		action, parseErr := answer.Request.URL.Parse(attribute(form, "action"))
		if parseErr != nil {
			b.t.Fatal(parseErr)
		}
		answer, err = b.client.PostForm(action.String(), fields)
	}
	b.t.Fatal("the forms of Dex do not come to an end")
	return ""
}

func find(n *html.Node, name string) *html.Node {
	if all := findAll(n, name); len(all) > 0 {
		return all[0]
	}
	return nil
}

func findAll(n *html.Node, name string) (found []*html.Node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.Data == name {
			found = append(found, d)
		}
	}
	return found
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}
