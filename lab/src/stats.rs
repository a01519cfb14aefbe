//! Statistics: medians; for two figures measured in the same rounds the distribution of the trimmed mean of their ratios, and
//! Wilcoxon's signed-rank test; for two runs the ratio of medians and the Mann-Whitney test.
//!
//! The bootstrap (Efron 1979, percentile method) draws from a generator with a fixed seed, so that the same samples give the
//! same interval. What is resampled is a trimmed mean: less noisy than the median, and a resample that draws an outlier thrice
//! out of ten still forgets it.

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
fn ratio_interval(a: &[f64], b: &[f64]) -> Interval {
    bootstrap(|random| resample(a, random) / resample(b, random), median(a) / median(b))
}

/// The ratio of the medians of two samples that have nothing to do with each other, if it is surely not 1: its interval lies
/// clear of 1 by `margin`, and the Mann-Whitney test agrees.
pub fn clear_ratio(a: &[f64], b: &[f64], margin: f64) -> Option<f64> {
    let interval = ratio_interval(a, b);
    let clear = interval.low > 1.0 + margin || interval.high < 1.0 / (1.0 + margin);
    (clear && mann_whitney(a, b) < 1.0 - CONFIDENCE).then_some(interval.value)
}

/// The two-sided p of the Mann-Whitney test that `a` and `b` come from the same: exact up to 12 of each (ties counted half),
/// by the normal approximation with correction for ties beyond.
fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
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

/// The two-sided p of Wilcoxon's signed-rank test that `differences` are spread evenly around 0: exact up to 25 (ties share
/// their ranks), by the normal approximation beyond.
pub fn signed_rank(differences: &[f64]) -> f64 {
    let mut sizes: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    sizes.sort_by(|x, y| x.abs().total_cmp(&y.abs()));
    let n = sizes.len();
    // Twice the ranks, so that shared ones are whole.
    let mut ranks = Vec::with_capacity(n);
    for run in sizes.chunk_by(|x, y| x.abs() == y.abs()) {
        let first = ranks.len() + 1;
        ranks.extend(std::iter::repeat_n(2 * first + run.len() - 1, run.len()));
    }
    let all: usize = ranks.iter().sum();
    let positive: usize = sizes.iter().zip(&ranks).filter(|(d, _)| **d > 0.0).map(|(_, rank)| rank).sum();
    let distance = positive.abs_diff(all - positive);
    if n > 25 {
        let variance: f64 = ranks.iter().map(|rank| (*rank as f64).powi(2)).sum();
        return erfc(distance as f64 / variance.sqrt() / std::f64::consts::SQRT_2);
    }
    // In how many of the ways to give signs the positive ones have each sum.
    let mut ways = vec![0.0f64; all + 1];
    ways[0] = 1.0;
    for rank in &ranks {
        for sum in (*rank..=all).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let extreme: f64 = (0..=all).filter(|sum| sum.abs_diff(all - sum) >= distance).map(|sum| ways[sum]).sum();
    extreme / (n as f64).exp2()
}

/// How probable it is that of `all` at least `n` happen, each with this probability.
pub fn at_least(n: usize, all: usize, probability: f64) -> f64 {
    let mut term = (1.0 - probability).powi(all as i32);
    let mut below = 0.0;
    for i in 0..n.min(all + 1) {
        below += term;
        term *= (all - i) as f64 / (i + 1) as f64 * probability / (1.0 - probability);
    }
    (1.0 - below).max(0.0)
}

/// The mean of the middle two fifths; NaN of nothing.
pub fn trimmed_mean(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = (3 * sorted.len()).div_ceil(10).min(sorted.len().saturating_sub(1) / 2);
    let kept = &sorted[cut..sorted.len() - cut];
    kept.iter().sum::<f64>() / kept.len() as f64
}

/// What the trimmed mean of `values` is in resamples, in order.
pub fn resampled_means(values: &[f64]) -> Vec<f64> {
    if values.is_empty() {
        return Vec::new();
    }
    let mut random = Random(1);
    let draw = |_| {
        let drawn: Vec<f64> = values.iter().map(|_| values[random.below(values.len())]).collect();
        trimmed_mean(&drawn)
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(draw).collect();
    means.sort_by(f64::total_cmp);
    means
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
    fn signed_ranks_as_in_the_tables() {
        // All of one sign: 2 of 2^n ways. The tables' critical values at 5 %: 0 for 6, 5 for 9, 8 for 10.
        near(signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 2.0 / 64.0, 1e-12);
        let with = |n: usize, negative: &[usize]| {
            let d: Vec<f64> = (1..=n).map(|i| if negative.contains(&i) { -(i as f64) } else { i as f64 }).collect();
            signed_rank(&d)
        };
        assert!(with(9, &[5]) < 0.05 && with(9, &[6]) > 0.05);
        assert!(with(10, &[8]) < 0.05 && with(10, &[9]) > 0.05);
        // Ties share ranks; nothing tells nothing.
        near(signed_rank(&[1.0, -1.0, 1.0, -1.0]), 1.0, 1e-12);
        near(signed_rank(&[0.0, 0.0]), 1.0, 1e-12);
        near(signed_rank(&[]), 1.0, 1e-12);
        // scipy.stats.wilcoxon of 1 to 30, those that 3 divides negative: statistic 165, by approximation p = 0.1650.
        near(with(30, &[3, 6, 9, 12, 15, 18, 21, 24, 27, 30]), 0.1650, 1e-3);
    }

    #[test]
    fn how_often_chance_makes_as_many() {
        near(at_least(0, 4, 0.1), 1.0, 1e-12);
        near(at_least(1, 4, 0.1), 1.0 - 0.9f64.powi(4), 1e-12);
        near(at_least(4, 4, 0.1), 1e-4, 1e-12);
        near(at_least(2, 3, 0.5), 0.5, 1e-12);
    }

    #[test]
    fn trimmed_means_forget_outliers() {
        near(trimmed_mean(&[1.0, 2.0, 3.0, 4.0, 1000.0]), 3.0, 1e-12);
        near(trimmed_mean(&[1.0, 2.0]), 1.5, 1e-12);
        assert!(trimmed_mean(&[]).is_nan() && resampled_means(&[]).is_empty());
        let means = resampled_means(&[1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 50.0]);
        assert!(quantile(&means, 0.025) > 0.9 && quantile(&means, 0.5) < 1.2, "{means:?}");
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
        near(clear_ratio(&twice, &a, 0.03).unwrap(), 2.0, 1e-12);
        assert_eq!(clear_ratio(&a, &a, 0.03), None);
        assert_eq!(clear_ratio(&[2.0, 2.1, 2.2], &[1.0, 1.1, 1.2], 0.03), None, "too few to tell");
    }
}
