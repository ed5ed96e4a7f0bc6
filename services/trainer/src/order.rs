//! The order in which windows are drawn: a function of the seed and of how many were drawn before.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Windows of one training, each with how often it is drawn in relation to the others.
#[derive(Debug, Clone)]
pub struct Order {
    seed: u64,
    shuffle: bool,
    weights: Vec<f64>,
    /// Draws of one epoch.
    length: usize,
    epoch: Option<(u64, Vec<usize>)>,
}

impl Order {
    /// An epoch has as many draws as the weights add up to: a window of weight 2 comes twice in every epoch, one of
    /// weight 0.5 in every second one on average.
    ///
    /// # Panics
    /// Without a window.
    #[must_use]
    pub fn new(seed: u64, shuffle: bool, weights: Vec<f64>) -> Self {
        assert!(!weights.is_empty(), "there is a window to draw");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, at least 1")]
        let length = weights.iter().sum::<f64>().round().max(1.0) as usize;
        Self { seed, shuffle, weights, length, epoch: None }
    }

    /// Draws of one epoch.
    #[must_use]
    pub const fn epoch_length(&self) -> usize {
        self.length
    }

    /// Numbers of the `count` windows drawn after the first `start`.
    pub fn draw(&mut self, start: u64, count: usize) -> Vec<usize> {
        let length = self.length as u64;
        (start..start + count as u64)
            .map(|i| {
                let place = usize::try_from(i % length).expect("below the length of an epoch");
                self.of_epoch(i / length)[place]
            })
            .collect()
    }

    fn of_epoch(&mut self, epoch: u64) -> &[usize] {
        if self.epoch.as_ref().is_none_or(|(e, _)| *e != epoch) {
            self.epoch = Some((epoch, self.plan(epoch)));
        }
        &self.epoch.as_ref().expect("just planned").1
    }

    /// Systematic sampling: a window of weight w comes floor(w) or ceil(w) times.
    fn plan(&self, epoch: u64) -> Vec<usize> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(epoch);
        let total: f64 = self.weights.iter().sum();
        #[expect(clippy::cast_precision_loss, reason = "a count of windows")]
        let step = total / self.length as f64;
        let mut point = step * rng.random_range(0.0..1.0);
        let (mut drawn, mut end) = (Vec::with_capacity(self.length), 0.0);
        for (i, weight) in self.weights.iter().enumerate() {
            end += weight;
            while point < end && drawn.len() < self.length {
                drawn.push(i);
                point += step;
            }
        }
        drawn.resize(self.length, self.weights.len() - 1);
        if self.shuffle {
            drawn.shuffle(&mut rng);
        }
        drawn
    }
}

/// The share of one process: every `world`-th of what all of them draw.
#[must_use]
pub fn share(drawn: &[usize], rank: usize, world: usize) -> Vec<usize> {
    drawn.iter().skip(rank).step_by(world.max(1)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_sees_every_window_once_and_a_resumed_order_is_the_same_order() {
        let whole = Order::new(7, true, vec![1.0; 5]).draw(0, 15);
        for epoch in whole.chunks(5) {
            let mut seen = epoch.to_vec();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4]);
        }
        assert_ne!(whole[..5], whole[5..10], "epochs differ");
        let parts: Vec<usize> =
            (0..5).flat_map(|i| Order::new(7, true, vec![1.0; 5]).draw(i * 3, 3)).collect();
        assert_eq!(parts, whole);
        assert_eq!(Order::new(7, false, vec![1.0; 3]).draw(0, 6), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_weight_says_how_often_a_window_comes() {
        let mut order = Order::new(3, true, vec![2.0, 1.0, 0.5, 1.0, 0.5]);
        assert_eq!(order.epoch_length(), 5);
        let drawn = order.draw(0, 5 * 400);
        let count = |i: usize| drawn.iter().filter(|d| **d == i).count();
        assert_eq!((count(0), count(1), count(3)), (800, 400, 400));
        assert_eq!(count(2) + count(4), 400);
        assert!((140..=260).contains(&count(2)), "{}", count(2));
    }

    #[test]
    fn processes_share_out_what_one_would_draw() {
        let drawn = Order::new(1, true, vec![1.0; 8]).draw(0, 8);
        let mut shared = [share(&drawn, 0, 2), share(&drawn, 1, 2)].concat();
        assert_eq!(shared.len(), 8);
        shared.sort_unstable();
        assert_eq!(shared, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
