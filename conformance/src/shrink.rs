//! Shortening a sequence that fails: whatever can be left out is left out.

/// The shortest list found, by leaving out ever smaller pieces, that still `fails`: it tells for a list at
/// which item it fails, if it does. At most `tries` lists are tried.
///
/// # Errors
/// The first error of `fails`.
pub fn shrink<T: Clone, E>(
    failing: &[T],
    at: usize,
    tries: usize,
    mut fails: impl FnMut(&[T]) -> Result<Option<usize>, E>,
) -> Result<Vec<T>, E> {
    // What comes after the failure has no part in it.
    let mut shortest = failing[..failing.len().min(at + 1)].to_vec();
    let mut piece = shortest.len().div_ceil(2);
    let mut left = tries;
    while piece > 0 {
        let mut start = 0;
        let mut shorter = false;
        while start < shortest.len() && left > 0 {
            let mut candidate = shortest.clone();
            candidate.drain(start..candidate.len().min(start + piece));
            left -= 1;
            match fails(&candidate)? {
                Some(at) => {
                    candidate.truncate(at + 1);
                    shortest = candidate;
                    shorter = true;
                }
                None => start += piece,
            }
        }
        if left == 0 {
            break;
        }
        piece = if shorter { piece.min(shortest.len()) } else { piece / 2 };
    }
    Ok(shortest)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn what_matters_is_left() {
        // Fails at the first 7 that comes after a 3.
        let fails = |list: &[u32]| {
            let three = list.iter().position(|item| *item == 3);
            let after =
                three.map(|three| (three, list[three..].iter().position(|item| *item == 7)));
            Ok::<_, Infallible>(after.and_then(|(three, seven)| Some(three + seven?)))
        };
        let list: Vec<u32> = (0..40).collect();
        assert_eq!(shrink(&list, 7, 100, fails), Ok(vec![3, 7]));
        assert_eq!(shrink(&list, 7, 0, fails).map(|list| list.len()), Ok(8));
    }
}
