package stats

import (
	"math"
	"testing"
)

func TestOf(t *testing.T) {
	values := make([]float64, 1000)
	for i := range values {
		values[i] = float64(1000 - i)
	}
	if got, want := Of(values), (Quantiles{1, 500, 900, 990, 999, 1000}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := Of([]float64{7}), (Quantiles{7, 7, 7, 7, 7, 7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := Of(nil); got != (Quantiles{}) {
		t.Errorf("%+v", got)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}, {[]float64{5}, 5}} {
		if got := Median(c.of); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.of, got, c.want)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("a median of nothing")
	}
}
