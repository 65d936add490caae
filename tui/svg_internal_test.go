package tui

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Cells of a picture, in pixels.
const (
	cellWidth, cellHeight = 8.0, 18.0
	pictureEdge           = 12.0
)

// svg draws a screen as a picture: what its lines say in SGR, in a font of one width.
func svg(lines []string, columns int, light bool) string { //nolint:revive // the flag is the theme's
	back, fore := "#16181d", "#d7dae0"
	if light {
		back, fore = "#fdfdfb", "#24272e"
	}
	w, h := float64(columns)*cellWidth+2*pictureEdge, float64(len(lines))*cellHeight+2*pictureEdge
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" font-family="'JetBrains Mono','DejaVu Sans Mono',Menlo,Consolas,monospace" font-size="13">`+"\n", w, h, w, h)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", back)
	for row, l := range lines {
		column := 0
		for _, run := range runs(l) {
			n := width(run.text)
			x, y := pictureEdge+float64(column)*cellWidth, pictureEdge+float64(row)*cellHeight
			column += n
			run.draw(&b, x, y, float64(n)*cellWidth, fore)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// coloured is text with one look.
type coloured struct {
	text       string
	fore, back string
	bold       bool
}

func (c coloured) draw(b *strings.Builder, x, y, w float64, usual string) {
	if c.back != "" {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, w, cellHeight, c.back)
	}
	if strings.TrimSpace(c.text) == "" {
		return
	}
	fore, weight := usual, ""
	if c.fore != "" {
		fore = c.fore
	}
	if i := strings.IndexFunc(c.text, isBlock); i >= 0 {
		c.drawBlocks(b, x, y, fore)
		return
	}
	if strings.ContainsFunc(c.text, isFrame) {
		c.drawFrame(b, x, y, fore)
		return
	}
	if c.bold {
		weight = ` font-weight="bold"`
	}
	// Each word by itself, where its cells are: fonts differ in how wide they are.
	for at := 0; at < len(c.text); {
		word, _, _ := strings.Cut(c.text[at:], " ")
		if word != "" {
			var text strings.Builder
			_ = xml.EscapeText(&text, []byte(word)) // a strings.Builder takes everything
			fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="%s"%s textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`+"\n",
				x+float64(width(c.text[:at]))*cellWidth, y+cellHeight*0.74, fore, weight, float64(width(word))*cellWidth, text.String())
		}
		at += len(word) + 1
	}
}

func isBlock(r rune) bool { return r >= '▁' && r <= '█' }

// drawBlocks draws bars as what they are: a font leaves gaps between them.
func (c coloured) drawBlocks(b *strings.Builder, x, y float64, fore string) {
	for i, r := range []rune(c.text) {
		if isBlock(r) {
			h := cellHeight * float64(r-'▁'+1) / 8
			fmt.Fprintf(b, `<rect x="%.1f" y="%.2f" width="%.1f" height="%.2f" fill="%s"/>`+"\n", x+float64(i)*cellWidth, y+cellHeight-h, cellWidth, h, fore)
		}
	}
}

func isFrame(r rune) bool { return strings.ContainsRune("─│┌┐└┘", r) }

// drawFrame draws the lines of a frame as what they are too.
func (c coloured) drawFrame(b *strings.Builder, x, y float64, fore string) {
	half, middle := cellWidth/2, cellHeight/2
	for i, r := range []rune(c.text) {
		at := map[rune]string{ // by left, centre, right, top, middle and bottom of the cell
			'─': "M%.1[1]f,%.1[5]fH%.1[3]f", '│': "M%.1[2]f,%.1[4]fV%.1[6]f",
			'┌': "M%.1[3]f,%.1[5]fH%.1[2]fV%.1[6]f", '┐': "M%.1[1]f,%.1[5]fH%.1[2]fV%.1[6]f",
			'└': "M%.1[2]f,%.1[4]fV%.1[5]fH%.1[3]f", '┘': "M%.1[2]f,%.1[4]fV%.1[5]fH%.1[1]f",
		}[r]
		if at == "" {
			continue
		}
		l := x + float64(i)*cellWidth
		path := fmt.Sprintf(at, l, l+half, l+cellWidth, y, y+middle, y+cellHeight)
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s"/>`+"\n", path, fore)
	}
}

// TestFramesAreDrawn: the lines of a frame are paths from one edge of a cell to another.
func TestFramesAreDrawn(t *testing.T) {
	for frame, want := range map[string]string{
		"┌": "M20.0,21.0H16.0V30.0", "─": "M12.0,21.0H20.0", "┐": "M12.0,21.0H16.0V30.0",
		"│": "M16.0,12.0V30.0", "└": "M16.0,12.0V21.0H20.0", "┘": "M16.0,12.0V21.0H12.0",
	} {
		if got := svg([]string{frame}, 1, false); !strings.Contains(got, `<path d="`+want+`"`) {
			t.Errorf("%s is drawn as %s", frame, got)
		}
	}
}

// runs cuts a line into pieces of one look each.
func runs(l string) []coloured {
	var out []coloured
	var now coloured
	for l != "" {
		at := strings.IndexByte(l, 0x1b)
		if at < 0 {
			at = len(l)
		}
		if at > 0 {
			now.text = l[:at]
			out = append(out, now)
		}
		if l = l[at:]; l == "" {
			break
		}
		end := strings.IndexByte(l, 'm')
		now = look(now, strings.Split(l[2:end], ";"))
		l = l[end+1:]
	}
	return out
}

// look takes the parameters of SGR.
func look(c coloured, params []string) coloured {
	for i := 0; i < len(params); i++ {
		switch params[i] {
		case "0":
			c = coloured{}
		case "1":
			c.bold = true
		case "38", "48":
			n, err := strconv.Atoi(params[i+2])
			if err != nil {
				continue
			}
			if params[i] == "38" {
				c.fore = palette(n)
			} else {
				c.back = palette(n)
			}
			i += 2
		}
	}
	return c
}

// palette returns one of the 256 colours of terminals, of those from 16 on.
func palette(n int) string {
	if n >= 232 {
		v := 8 + 10*(n-232)
		return fmt.Sprintf("#%02x%02x%02x", v, v, v)
	}
	level := func(i int) int {
		if i == 0 {
			return 0
		}
		return 55 + 40*i
	}
	n -= 16
	return fmt.Sprintf("#%02x%02x%02x", level(n/36), level(n/6%6), level(n%6))
}
