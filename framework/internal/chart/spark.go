package chart

import "strconv"

// Size of a spark line's drawing, which the page stretches.
const (
	SparkWidth  = 240
	SparkHeight = 40
)

// Spark returns the points attribute of a polyline through values at equal distances, from 0 at
// the bottom to most at the top.
func Spark(values []float64, most float64) string {
	var points []byte
	for i, v := range values {
		y := SparkHeight - 1.0
		if most > 0 {
			y -= v / most * (SparkHeight - 3)
		}
		points = appendPoint(points, float64(i)*SparkWidth/float64(max(len(values)-1, 1)), y)
	}
	return string(points)
}

// appendPoint adds a point to those of a polyline.
func appendPoint(points []byte, x, y float64) []byte {
	if len(points) > 0 {
		points = append(points, ' ')
	}
	points = strconv.AppendFloat(points, x, 'f', 1, 64)
	points = append(points, ',')
	return strconv.AppendFloat(points, y, 'f', 1, 64)
}
