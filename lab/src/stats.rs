//! Statistics: medians, a bootstrap interval for the ratio of two medians, the Mann-Whitney test, Wilson's interval.
//!
//! The bootstrap (Efron 1979, percentile method) draws from a generator with a fixed seed, so that the same samples give the
//! same interval.

/// The confidence of intervals, and one minus the level of tests.
pub const CONFIDENCE: f64 = 0.95;
/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// The median; NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The quantile at `q` (0 to 1), between neighbours in proportion; NaN of nothing.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = q * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64)
}

/// A small generator of random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.draw()) * n as u128) >> 64) as usize
    }
}

/// A figure with its interval at [`CONFIDENCE`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

fn bootstrap(mut draw: impl FnMut(&mut Random) -> f64, value: f64) -> Interval {
    let mut random = Random(1);
    let mut drawn: Vec<f64> = (0..RESAMPLES).map(|_| draw(&mut random)).filter(|x| x.is_finite()).collect();
    drawn.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    Interval { value, low: quantile(&drawn, tail), high: quantile(&drawn, 1.0 - tail) }
}

fn resample(values: &[f64], random: &mut Random) -> f64 {
    let drawn: Vec<f64> = values.iter().map(|_| values[random.below(values.len())]).collect();
    median(&drawn)
}

/// The median with its interval.
pub fn median_interval(values: &[f64]) -> Interval {
    bootstrap(|random| resample(values, random), median(values))
}

/// The ratio of the medians of `a` and `b` with its interval.
pub fn ratio_interval(a: &[f64], b: &[f64]) -> Interval {
    bootstrap(|random| resample(a, random) / resample(b, random), median(a) / median(b))
}

/// The two-sided p of the Mann-Whitney test that `a` and `b` come from the same: exact up to 12 of each (ties counted half),
/// by the normal approximation with correction for ties beyond.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let (n, m) = (a.len(), b.len());
    if n == 0 || m == 0 {
        return 1.0;
    }
    let mut u = 0.0;
    for x in a {
        for y in b {
            u += if x > y {
                1.0
            } else if x < y {
                0.0
            } else {
                0.5
            };
        }
    }
    let mean = (n * m) as f64 / 2.0;
    if n <= 12 && m <= 12 {
        // Ways to get each value of U: w(n, m, u) = w(n-1, m, u-m) + w(n, m-1, u).
        let most = n * m;
        let mut ways = vec![vec![vec![0.0f64; most + 1]; m + 1]; n + 1];
        for i in 0..=n {
            for j in 0..=m {
                for k in 0..=most {
                    ways[i][j][k] = if i == 0 || j == 0 {
                        f64::from(u8::from(k == 0))
                    } else {
                        let left = if k >= j { ways[i - 1][j][k - j] } else { 0.0 };
                        left + ways[i][j - 1][k]
                    };
                }
            }
        }
        let counts = &ways[n][m];
        let all: f64 = counts.iter().sum();
        let distance = (u - mean).abs();
        let extreme: f64 = (0..=most).filter(|&k| (k as f64 - mean).abs() >= distance - 1e-9).map(|k| counts[k]).sum();
        return (extreme / all).min(1.0);
    }
    let total = (n + m) as f64;
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_by(f64::total_cmp);
    let ties: f64 = all.chunk_by(|x, y| x == y).map(|run| (run.len() as f64).powi(3) - run.len() as f64).sum();
    let variance = (n * m) as f64 / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - mean).abs() - 0.5).max(0.0) / variance.sqrt();
    erfc(z / std::f64::consts::SQRT_2)
}

/// The complementary error function (Numerical Recipes' Chebyshev fit, relative error below 1.2e-7).
fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.5 * x.abs());
    let terms = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let polynomial = terms.iter().rev().fold(0.0, |sum, term| sum * t + term);
    let answer = t * (-x * x + polynomial).exp();
    if x >= 0.0 { answer } else { 2.0 - answer }
}

/// Wilson's interval (1927) for a share of `wins` in `all` at [`CONFIDENCE`].
pub fn wilson(wins: usize, all: usize) -> Interval {
    if all == 0 {
        return Interval { value: f64::NAN, low: 0.0, high: 1.0 };
    }
    let (z, n) = (1.959_964, all as f64);
    let p = wins as f64 / n;
    let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt() / (1.0 + z * z / n);
    Interval { value: p, low: (middle - half).max(0.0), high: (middle + half).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() <= by, "{a} is not {b}");
    }

    #[test]
    fn medians_and_quantiles() {
        near(median(&[3.0, 1.0, 2.0]), 2.0, 0.0);
        near(median(&[4.0, 1.0, 2.0, 3.0]), 2.5, 0.0);
        near(quantile(&[0.0, 10.0], 0.25), 2.5, 1e-12);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn mann_whitney_as_in_the_tables() {
        // Five against five, all separate: 2 of 252 orders are as extreme.
        near(mann_whitney(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]), 2.0 / 252.0, 1e-12);
        near(mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.1, 1e-12);
        // U = 2 with 4 and 4 has p = 4 * 2 / 70 = 0.1143 (1 + 1 + 2 orders at each end).
        near(mann_whitney(&[1.0, 2.0, 3.0, 6.0], &[4.0, 5.0, 7.0, 8.0]), 8.0 / 70.0, 1e-12);
        near(mann_whitney(&[1.0, 1.0], &[1.0, 1.0]), 1.0, 1e-12);
        near(mann_whitney(&[], &[1.0]), 1.0, 0.0);
    }

    #[test]
    fn mann_whitney_of_large_samples() {
        let a: Vec<f64> = (0..20).map(f64::from).collect();
        let b: Vec<f64> = (0..20).map(|i| f64::from(i) + 6.5).collect();
        // scipy.stats.mannwhitneyu(a, b, method="asymptotic").pvalue: U = 91.
        near(mann_whitney(&a, &b), 0.003_336, 2e-5);
        near(mann_whitney(&a, &a), 1.0, 1e-6);
    }

    #[test]
    fn the_error_function() {
        near(erfc(0.0), 1.0, 1e-6);
        near(erfc(1.0), 0.157_299_2, 1e-6);
        near(erfc(-1.0), 1.842_700_8, 1e-6);
    }

    #[test]
    fn wilson_as_published() {
        // Newcombe 1998, example: 81 of 263: 0.2553 to 0.3662.
        let interval = wilson(81, 263);
        near(interval.low, 0.2553, 1e-4);
        near(interval.high, 0.3662, 1e-4);
        near(wilson(0, 20).high, 0.1611, 1e-4);
    }

    #[test]
    fn ratios_of_equal_samples_contain_one() {
        let a = [1.0, 1.1, 0.9, 1.05, 0.95];
        let r = ratio_interval(&a, &a);
        near(r.value, 1.0, 1e-12);
        assert!(r.low < 1.0 && r.high > 1.0 && r.low > 0.8 && r.high < 1.25);
        let twice: Vec<f64> = a.iter().map(|x| x * 2.0).collect();
        let r = ratio_interval(&twice, &a);
        near(r.value, 2.0, 1e-12);
        assert!(r.low > 1.6 && r.high < 2.5);
        assert_eq!(r, ratio_interval(&twice, &a), "the same samples give the same interval");
    }
}
