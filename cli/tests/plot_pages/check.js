// Sums of a page's data as it is drawn, and whether hover, zoom, search and clicks change the page. Returns the result as JSON.
(() => {
  const sum = (count, of) => { let all = 0; for (let i = 0; i < count; i++) all += of(i); return all; };
  const last = column => column[column.length - 1];
  const result = {
    blocks: trace.count, size: sum(trace.count, i => trace.size[i]), peak: trace.requested[trace.peak],
    areas: sum(trace.count, i => trace.size[i] * (trace.end[i] - trace.start[i])),
    limit: trace.limit, rungs: last(trace.rungs), events: $('figures').firstChild.textContent,
    lines: $('lines').textContent, rectangles: trace.isMoment ? null : drawMap(), moment: $('moment').textContent,
    live: sum(trace.count, i => trace.start[i] <= view.moment && view.moment < trace.end[i] ? trace.capacity[i] : 0),
    now: drawNow(liveNow()), tree: drawTree(liveNow()), rows: $('live').rows.length, heads: $('live').rows[0].textContent,
    origins: trace.origins.length - 1, colours: [...$('colour').options].map(option => option.value),
  };
  // Each canvas as 40 by 8 mean colours.
  const [wide, tall] = [40, 8], mean = canvas => {
    const { data, width, height } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height), cells = [];
    for (let y = 0; y < tall; y++) for (let x = 0; x < wide; x++) {
      const from = [x * width / wide | 0, y * height / tall | 0], to = [(x + 1) * width / wide | 0, (y + 1) * height / tall | 0], sums = [0, 0, 0];
      for (let row = from[1]; row < to[1]; row++) for (let column = from[0]; column < to[0]; column++) {
        const at = 4 * (row * width + column), alpha = data[at + 3] / 255;
        for (let part = 0; part < 3; part++) sums[part] += 255 + alpha * (data[at + part] - 255);
      }
      for (const one of sums) cells.push(Math.round(one / ((to[0] - from[0]) * (to[1] - from[1]))));
    }
    return cells;
  };
  const canvases = (trace.isMoment ? ['now', 'tree'] : ['bytes', 'calls', 'map', 'now', 'tree']).map($);
  const pictures = () => canvases.flatMap(mean);
  result.picture = pictures();
  const states = [String(result.picture)], changed = () => { drawAll(); const state = String(pictures()), is = state !== states[states.length - 1]; states.push(state); return is; };
  // Along a canvas, until the pointer is on something.
  const over = (canvas, type) => {
    const box = canvas.getBoundingClientRect(), tip = $('tip');
    const at = step => new PointerEvent('pointermove', { clientX: box.left + box.width * (step % 40) / 40, clientY: box.top + box.height * (step * 7 % 40 + .5) / 40, bubbles: true, pointerId: 1 });
    tip.textContent = '';
    for (let step = 1; step < 1600 && !tip.textContent; step++) { const event = at(step); canvas.dispatchEvent(event); if (tip.textContent && type) canvas.dispatchEvent(new MouseEvent(type, event)); }
    return tip.textContent;
  };
  result.tip = over($(trace.isMoment ? 'now' : 'map'), trace.isMoment && 'click');
  result.pinned = $('pinned').textContent;
  result.tile = over($('tree'));
  if (!trace.isMoment) {
    const map = $('map'), box = map.getBoundingClientRect(), wide = view.x1 - view.x0;
    map.dispatchEvent(new WheelEvent('wheel', { clientX: box.left + box.width / 2, clientY: box.top + 9, deltaY: -200, bubbles: true, cancelable: true }));
    result.zoomed = wide / (view.x1 - view.x0);
    result.redrawn = changed(); $('all').click(); changed();
    $('axis').value = 'time'; $('axis').dispatchEvent(new Event('change')); drawAll();
    result.timed = $('bytes').toDataURL() !== ''; $('axis').value = 'events'; $('axis').dispatchEvent(new Event('change')); changed();
  }
  const find = text => { $('search').value = text; search(); return $('found').textContent; };
  result.found = find('size>=1KiB'); result.none = find('size>=1PiB'); result.dimmed = changed();
  result.unread = find('moon');
  const origin = trace.origins.find((_, at) => at) || ['', ''];
  result.named = find(origin[1] ? `site:"${origin[1].slice(1)}"` : `pool:"${origin[0]}"`);
  find(''); changed();
  if (trace.origins.length > 1) { over($('tree'), 'click'); result.clicked = [$('search').value, $('found').textContent]; find(''); }
  result.shades = new Set([...$('colour').options].map(option => { $('colour').value = option.value; key(); drawAll(); return String(pictures()); })).size;
  const began = performance.now(); drawAll(); result.drawn = Math.round(performance.now() - began);
  return JSON.stringify(result);
})()
